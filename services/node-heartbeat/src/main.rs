fn main() -> std::process::ExitCode {
    chassis::main::<node_heartbeat::NodeHeartbeatService>()
}
