//! Values that Rust and Postgres hold differently, converted without loss or not at all.

use crate::types;
use sqlx::{
    Decode, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{
        PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef, types::Oid,
    },
};
use std::fmt;
use vocab::Millis;

/// A value that its column cannot hold. Cutting it to size would be a lie.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} out of range: {value}")]
pub struct OutOfRange {
    what: &'static str,
    value: String,
}

impl OutOfRange {
    /// `what` names the column.
    pub fn new(what: &'static str, value: impl fmt::Display) -> Self {
        Self {
            what,
            value: value.to_string(),
        }
    }
}

/// A moment for a `timestamptz`, which counts microseconds from 2000 on: exact in whole numbers, where arithmetic on
/// intervals would go through floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Millis);

impl Moment {
    /// 2000-01-01, Unix milliseconds.
    const EPOCH_MS: i64 = 946_684_800_000;
    /// 0001-01-01 and the last millisecond of 9999: every client can read a year of four digits.
    const MIN: Millis = Millis(-62_135_596_800_000);
    const MAX: Millis = Millis(253_402_300_799_999);

    /// As the server counts.
    pub(crate) fn micros(self) -> i64 {
        // In range: checked when it was made.
        (self.0.0 - Self::EPOCH_MS) * 1000
    }
}

impl TryFrom<Millis> for Moment {
    type Error = OutOfRange;

    fn try_from(at: Millis) -> Result<Self, OutOfRange> {
        if (Self::MIN..=Self::MAX).contains(&at) {
            Ok(Self(at))
        } else {
            Err(OutOfRange::new("time", at.0))
        }
    }
}

impl From<Moment> for Millis {
    fn from(moment: Moment) -> Millis {
        moment.0
    }
}

impl Type<Postgres> for Moment {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(types::TIMESTAMPTZ.oid))
    }
}

impl PgHasArrayType for Moment {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(types::TIMESTAMPTZ.array))
    }
}

impl Encode<'_, Postgres> for Moment {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode(self.micros(), buffer)
    }
}

impl Decode<'_, Postgres> for Moment {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("a time as text: only prepared statements give it as a number".into());
        }
        let micros = <i64 as Decode<Postgres>>::decode(value)?;
        Ok(Self::try_from(Millis(
            micros.div_euclid(1000).saturating_add(Self::EPOCH_MS),
        ))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bigint, unsigned};

    #[test]
    fn only_what_fits_is_taken() {
        assert_eq!(bigint("x", 0), Ok(0));
        assert_eq!(bigint("x", i64::MAX as u64), Ok(i64::MAX));
        assert_eq!(
            bigint("x", 1 << 63).unwrap_err().to_string(),
            "x out of range: 9223372036854775808"
        );
        assert_eq!(unsigned("x", i64::MAX), Ok(i64::MAX as u64));
        assert!(unsigned("x", -1).is_err());
        for ok in [Moment::MIN, Millis(0), Moment::MAX] {
            assert_eq!(Moment::try_from(ok).map(Millis::from), Ok(ok));
        }
        for bad in [i64::MIN, Moment::MIN.0 - 1, Moment::MAX.0 + 1, i64::MAX] {
            assert!(Moment::try_from(Millis(bad)).is_err(), "{bad}");
        }
    }
}
