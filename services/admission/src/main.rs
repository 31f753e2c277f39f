fn main() -> std::process::ExitCode {
    chassis::main::<admission::AdmissionService>()
}
