//! `numeric` in the server's binary format, of whole numbers that are not negative.

use sqlx::{
    Decode, Postgres, Type,
    error::BoxDynError,
    postgres::{PgTypeInfo, PgValueFormat, PgValueRef, types::Oid},
};

/// Digits of a `numeric` are of this base.
const BASE: u128 = 10_000;
const POSITIVE: u16 = 0;

/// A whole number of a `numeric`, which holds more than a `bigint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numeric(pub u128);

impl Numeric {
    /// Count of digits, weight of the first one, sign, digits behind the point; the digits.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let mut digits = Vec::new();
        let mut rest = self.0;
        while rest > 0 {
            // Below 10,000.
            digits.push((rest % BASE) as u16);
            rest /= BASE;
        }
        // A u128 has at most ten digits.
        let count = digits.len() as u16;
        out.extend_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&count.saturating_sub(1).to_be_bytes());
        out.extend_from_slice(&POSITIVE.to_be_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
        for digit in digits.iter().rev() {
            out.extend_from_slice(&digit.to_be_bytes());
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(2).map(|two| [two[0], two[1]]);
        let count = u16::from_be_bytes(words.next()?);
        let weight = i32::from(i16::from_be_bytes(words.next()?));
        let sign = u16::from_be_bytes(words.next()?);
        let _behind_the_point = words.next()?;
        if sign != POSITIVE || i32::from(count) > weight + 1 && count > 0 {
            return None;
        }
        let mut value = 0_u128;
        for _ in 0..if count == 0 { 0 } else { weight + 1 } {
            let digit = words.next().map_or(0, u16::from_be_bytes);
            value = value.checked_mul(BASE)?.checked_add(digit.into())?;
        }
        Some(Self(value))
    }
}

impl Type<Postgres> for Numeric {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(crate::types::NUMERIC.oid))
    }
}

impl Decode<'_, Postgres> for Numeric {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("a numeric as text: only prepared statements give it as digits".into());
        }
        Self::parse(value.as_bytes()?).ok_or_else(|| "no whole number from 0 to 2^128 - 1".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_written() {
        for number in [
            0,
            1,
            9_999,
            10_000,
            10_001,
            20_000_000,
            u128::from(u64::MAX),
            10_u128.pow(38),
            u128::MAX,
        ] {
            let mut bytes = Vec::new();
            Numeric(number).write(&mut bytes);
            assert_eq!(Numeric::parse(&bytes), Some(Numeric(number)));
        }
        // As the server sends it: without the zeros at the end.
        let server = [0, 1, 0, 1, 0, 0, 0, 0, 0, 7];
        assert_eq!(Numeric::parse(&server), Some(Numeric(70_000)));
        let fraction = [0, 1, 0xff, 0xff, 0, 0, 0, 1, 0x13, 0x88];
        assert_eq!(Numeric::parse(&fraction), None);
        let negative = [0, 1, 0, 0, 0x40, 0, 0, 0, 0, 7];
        assert_eq!(Numeric::parse(&negative), None);
        assert_eq!(Numeric::parse(&[0, 1]), None);
    }
}
