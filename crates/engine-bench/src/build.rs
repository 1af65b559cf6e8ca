//! Settings with which this package was built, from its build script. Instruction counts of
//! different settings are not comparable.

/// Output of `rustc -V`.
pub const COMPILER: &str = env!("TIDEGATE_RUSTC");
/// Target triple.
pub const TARGET: &str = env!("TIDEGATE_TARGET");
/// CPU features that the compiler may use, separated by commas.
pub const TARGET_FEATURES: &str = env!("TIDEGATE_TARGET_FEATURES");
/// Compiler flags of the environment and of cargo's configuration, separated by spaces.
pub const FLAGS: &str = env!("TIDEGATE_RUSTFLAGS");
/// Optimisation level: `0` to `3`, `s` or `z`.
pub const OPT_LEVEL: &str = env!("TIDEGATE_OPT_LEVEL");
