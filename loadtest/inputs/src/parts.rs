//! Inputs of several parts. A part is a tag byte, a length of two bytes (little-endian), and the content.

/// Iterator over the parts of an input; the last part may be shorter than its stated length.
pub struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    pub fn of(input: &'a [u8]) -> Self {
        Self(input)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([tag, low, high], rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (part, rest) = rest.split_at(length.min(rest.len()));
        self.0 = rest;
        Some((*tag, part))
    }
}
