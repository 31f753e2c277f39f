fn main() -> std::process::ExitCode {
    node_heartbeat::main()
}
