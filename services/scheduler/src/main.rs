fn main() -> std::process::ExitCode {
    scheduler::main()
}
