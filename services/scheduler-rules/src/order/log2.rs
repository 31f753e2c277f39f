//! Binary logarithms in fixed point. An order by a logarithm does not depend on its base, so this is the only one.

/// An exact result is never above, and less than 2^-38 below.
pub const FRACTION_BITS: u32 = 40;

/// In units of 2^-40; of 0 as of 1. Growing: a larger argument never has a smaller logarithm.
///
/// Digit by digit: squaring a mantissa of [1, 2) doubles its logarithm, and the next digit is whether the square reached 2.
pub fn log2(x: u64) -> i64 {
    let x = x.max(1);
    let whole = x.ilog2();
    // One whole bit and 63 of fraction.
    let mut mantissa = u128::from(x << (63 - whole));
    let mut log2 = i64::from(whole);
    for _ in 0..FRACTION_BITS {
        let square = (mantissa * mantissa) >> 63;
        let digit = square >> 64;
        mantissa = square >> digit;
        log2 = log2 << 1 | i64::from(digit == 1);
    }
    log2
}

/// Of milliseconds as of seconds; of less than one as of one.
pub fn log2_of_seconds(ms: u64) -> i64 {
    (log2(ms.max(1000)) - log2(1000)).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(x: u64, whole: i64, fraction: f64) {
        let unit = (1u64 << FRACTION_BITS) as f64;
        let found = log2(x) as f64 / unit;
        let expected = whole as f64 + fraction;
        assert!((found - expected).abs() < 1e-11, "log2({x}) = {found}");
    }

    #[test]
    fn known_values() {
        check(0, 0, 0.0);
        check(1, 0, 0.0);
        check(2, 1, 0.0);
        check(3, 1, 0.584_962_500_721_156);
        check(10, 3, 0.321_928_094_887_362);
        check(1000, 9, 0.965_784_284_662_087);
        check(1 << 63, 63, 0.0);
        check(u64::MAX, 64, 0.0);
    }

    #[test]
    fn seconds() {
        assert_eq!(log2_of_seconds(0), 0);
        assert_eq!(log2_of_seconds(1000), 0);
        let two = log2_of_seconds(2000);
        assert!((two - (1 << FRACTION_BITS)).abs() <= 4, "{two}");
    }

    proptest! {
        #[test]
        fn it_grows_and_is_the_float_one(x in 1..u64::MAX) {
            prop_assert!(log2(x) <= log2(x + 1));
            let found = log2(x) as f64 / (1u64 << FRACTION_BITS) as f64;
            prop_assert!((found - (x as f64).log2()).abs() < 1e-11);
        }
    }
}
