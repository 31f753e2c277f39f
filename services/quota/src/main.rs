fn main() -> std::process::ExitCode {
    chassis::main::<quota::QuotaService>()
}
