//! The `tidegate` command.

#![forbid(unsafe_code)]

/// Allocator of builds with musl, whose own is slow (docs/dev/performance.md).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    tidegate_commands::main()
}
