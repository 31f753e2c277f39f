//! The contract: messages, subjects and stream names. Field numbers are never reused.

pub mod subjects;

/// The generated messages of `proto/apportion/v1`.
#[allow(clippy::all)]
pub mod v1 {
    include!("../generated/apportion.v1.rs");
}

/// `proto/apportion/v1` as an encoded `google.protobuf.FileDescriptorSet`, for languages that build their messages from it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../generated/descriptors.bin");
