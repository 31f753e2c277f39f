fn main() -> std::process::ExitCode {
    quota::main()
}
