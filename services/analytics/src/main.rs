fn main() -> std::process::ExitCode {
    chassis::main::<analytics::AnalyticsService>()
}
