fn main() -> std::process::ExitCode {
    admission::main()
}
