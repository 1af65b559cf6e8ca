//! The `tidegate` command.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    tidegate_cli::main()
}
