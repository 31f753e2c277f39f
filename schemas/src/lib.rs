//! The contract: the generated messages. Field numbers are never reused.

/// The generated messages of `proto/apportion/v1`.
#[allow(clippy::all)]
pub mod v1 {
    include!("../generated/apportion.v1.rs");
}

/// `proto/apportion/v1` as an encoded `google.protobuf.FileDescriptorSet`, for languages that build their messages from it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../generated/descriptors.bin");

/// A message of a type that derives `wire::Wire` as the generated type of the same .proto message.
pub trait ToProst: wire::Message {
    /// Panics if `P` is generated from another message; `wire::differences` compares the two.
    fn to_prost<P: prost::Message + Default>(&self) -> P {
        P::decode(&*self.encode_to_vec()).expect("a message of the same shape")
    }
}

impl<M: wire::Message> ToProst for M {}
