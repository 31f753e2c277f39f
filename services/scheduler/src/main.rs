fn main() -> std::process::ExitCode {
    chassis::main::<scheduler::SchedulerService>()
}
