//! Tells the package which compiler made it: `bench engine --instructions` compares counts of one
//! compiler only.

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var_os("RUSTC").expect("cargo names the compiler");
    let version = Command::new(rustc)
        .arg("-V")
        .output()
        .expect("the compiler runs");
    let version = String::from_utf8_lossy(&version.stdout);
    println!("cargo:rustc-env=TIDEGATE_RUSTC={}", version.trim());
    for (name, from) in [
        ("TIDEGATE_TARGET", "TARGET"),
        ("TIDEGATE_TARGET_FEATURES", "CARGO_CFG_TARGET_FEATURE"),
        ("TIDEGATE_OPT_LEVEL", "OPT_LEVEL"),
    ] {
        let value = env::var(from).unwrap_or_default();
        println!("cargo:rustc-env={name}={value}");
    }
    // Separated by 0x1f, which a table and JSON would show as an escape.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    println!(
        "cargo:rustc-env=TIDEGATE_RUSTFLAGS={}",
        flags.replace('\u{1f}', " ")
    );
    println!("cargo:rerun-if-changed=build.rs");
}
