fn main() -> std::process::ExitCode {
    analytics::main()
}
