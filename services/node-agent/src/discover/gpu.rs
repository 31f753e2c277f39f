//! The GPUs of a machine, as the driver's library NVML knows them. Where there is none, there are no GPUs.

use super::{DiscoverError, token};
use nvml_wrapper::{Nvml, error::NvmlError};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// In the order of the PCI bus.
    pub index: u32,
    pub uuid: String,
    /// A token.
    pub model: String,
    pub memory_bytes: u64,
    /// As the kernel writes it.
    pub pci_address: String,
    /// The NUMA zone next to it.
    pub zone: Option<u32>,
}

pub(super) fn devices() -> Result<Vec<Gpu>, DiscoverError> {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(DiscoverError::Driver(error.to_string())),
    };
    let count = nvml
        .device_count()
        .map_err(|error| DiscoverError::Driver(error.to_string()))?;
    let one = |index| {
        device(&nvml, index).map_err(|error| DiscoverError::Gpu {
            index,
            reason: error.to_string(),
        })
    };
    (0..count).map(one).collect()
}

/// The library is there but no device of its kind, or not even the library.
fn is_absent(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded
    )
}

fn device(nvml: &Nvml, index: u32) -> Result<Gpu, NvmlError> {
    let device = nvml.device_by_index(index)?;
    Ok(Gpu {
        index,
        uuid: device.uuid()?,
        model: token(&device.name()?),
        memory_bytes: device.memory_info()?.total,
        pci_address: pci_address(&device.pci_info()?.bus_id),
        zone: None,
    })
}

/// NVML writes eight digits of the domain and capitals, the kernel four and small letters.
fn pci_address(bus_id: &str) -> String {
    let small = bus_id.to_ascii_lowercase();
    match small.strip_prefix("0000") {
        Some(short) if short.find(':') == Some(4) => short.to_owned(),
        _ => small,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_the_kernel_does() {
        let check = |bus_id: &str, expected: &str| assert_eq!(pci_address(bus_id), expected);
        check("00000000:3B:00.0", "0000:3b:00.0");
        check("0000:3B:00.0", "0000:3b:00.0");
        check("00010000:3B:00.0", "00010000:3b:00.0");
        check("", "");
    }
}
