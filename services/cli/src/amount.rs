//! Amounts as people write them.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use vocab::{
    Account, AllocationId, BudgetOf, DAY_MS, HOUR_MS, Millis, QuotaResource, ResourceKind, Team,
    human,
};

/// `4` cores, `0.5` or `1500m`.
pub fn cpu_milli(text: &str) -> Result<i64, String> {
    milli(text).ok_or_else(|| format!("{text}: write cores as 4 or 0.5, or millicores as 500m"))
}

/// `4` of anything, `0.5` or `1500m`.
pub fn thousandths(text: &str) -> Result<i64, String> {
    milli(text).ok_or_else(|| format!("{text}: write whole ones as 4, or parts as 0.5 or 500m"))
}

fn milli(text: &str) -> Option<i64> {
    match text.strip_suffix('m') {
        Some(milli) => Decimal::parse(milli)?.times(1),
        None => Decimal::parse(text)?.times(1000),
    }
}

/// Digits, perhaps with a point among them.
struct Decimal {
    digits: u128,
    /// Of them behind the point.
    places: u32,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) {
            return None;
        }
        let part = part.trim_end_matches('0');
        Some(Self {
            digits: format!("{whole}{part}").parse().ok()?,
            places: u32::try_from(part.len()).ok()?,
        })
    }

    /// So many units; none: that is not a whole number of them, or too large a one.
    fn times(&self, unit: i64) -> Option<i64> {
        let (units, rest) = self.divided(unit)?;
        (rest == 0).then_some(units)
    }

    /// Not less than that.
    fn times_rounded_up(&self, unit: i64) -> Option<i64> {
        let (units, rest) = self.divided(unit)?;
        units.checked_add(i64::from(rest > 0))
    }

    fn divided(&self, unit: i64) -> Option<(i64, u128)> {
        let product = self.digits.checked_mul(unit.unsigned_abs().into())?;
        let places = 10_u128.checked_pow(self.places)?;
        let units = i64::try_from(product / places).ok()?;
        Some((units, product % places))
    }
}

/// A priority, which has no parts.
pub fn priority(text: &str) -> Result<i32, String> {
    text.parse()
        .map_err(|_| format!("{text}: write a whole number, as 5 or -5"))
}

/// A duration that is not nothing.
pub fn some_duration_ms(text: &str) -> Result<i64, String> {
    match duration_ms(text)? {
        0 => Err(format!(
            "{text}: it must be more than nothing; without the flag there is no bound"
        )),
        ms => Ok(ms),
    }
}

/// `500ms`, `90s`, `10m`, `2h` or `7d`, in milliseconds.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text}: write a duration as 500ms, 90s, 10m, 2h or 7d");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => HOUR_MS,
        "d" => DAY_MS,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).unwrap_or_default();
    let number: i64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).ok_or_else(wrong)
}

/// A moment as Unix milliseconds: `2026-01-31T08:00:00Z`, or in UTC `2026-01-31 08:00` or `2026-01-31`.
pub fn moment_ms(text: &str) -> Result<i64, String> {
    let wrong = || {
        format!(
            "{text}: write a moment as 2026-01-31T08:00:00Z, 2026-01-31 08:00 or 2026-01-31, in UTC"
        )
    };
    let whole = match (text.len(), text.replacen(' ', "T", 1)) {
        (10, date) => format!("{date}T00:00:00Z"),
        (16, minute) => format!("{minute}:00Z"),
        (19, second) => format!("{second}Z"),
        (_, whole) => whole,
    };
    let moment = OffsetDateTime::parse(&whole, &Rfc3339).map_err(|_| wrong())?;
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).map_err(|_| wrong())
}

/// A moment, or so long before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    At(i64),
    Ago(i64),
}

impl Past {
    /// Unix milliseconds.
    pub fn ms(self, now_ms: i64) -> i64 {
        match self {
            Self::At(ms) => ms,
            Self::Ago(ms) => now_ms.saturating_sub(ms),
        }
    }
}

/// `2026-01-31T08:00:00Z`, or `2h` for two hours ago.
pub fn past(text: &str) -> Result<Past, String> {
    if let Ok(ms) = duration_ms(text) {
        return Ok(Past::Ago(ms));
    }
    let moment = moment_ms(text).map(Past::At);
    moment.map_err(|wrong| format!("{wrong}, or 2h for two hours ago"))
}

/// A moment, or so long after now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToCome {
    At(i64),
    In(i64),
}

impl ToCome {
    /// Unix milliseconds.
    pub fn ms(self, now_ms: i64) -> i64 {
        match self {
            Self::At(ms) => ms,
            Self::In(ms) => now_ms.saturating_add(ms),
        }
    }
}

/// As `moment_ms`, or `2h` for two hours from now.
pub fn to_come(text: &str) -> Result<ToCome, String> {
    match duration_ms(text) {
        Ok(ms) => Ok(ToCome::In(ms)),
        Err(_) => moment_ms(text)
            .map(ToCome::At)
            .map_err(|wrong| format!("{wrong}, or 2h for two hours from now")),
    }
}

/// How long something is there, in its two largest units.
pub fn age(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// What a unit of memory has of bytes, by the names that Kubernetes gives them; those of 1,024 may have a B behind them.
const MEMORY_UNITS: [(&str, i64); 19] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1000),
    ("B", 1),
];

/// `16GiB`, `16Gi`, `1.5Gi`, `512Mi`, `16G` or `1024B`. A number alone is refused: who writes 16 hardly means bytes.
pub fn bytes(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text}: write memory as 16GiB or 16Gi, 512Mi, 16G, or bytes as 1024B");
    let unit = MEMORY_UNITS.iter().find_map(|(name, bytes)| {
        let number = text.strip_suffix(name)?;
        Some((number, *bytes))
    });
    match (unit, Decimal::parse(text)) {
        (Some((number, 1)), _) => Decimal::parse(number).and_then(|number| number.times(1)),
        // A tenth of a GiB is no whole number of bytes.
        (Some((number, bytes)), _) => {
            Decimal::parse(number).and_then(|number| number.times_rounded_up(bytes))
        }
        (None, Some(Decimal { digits: 0, .. })) => Some(0),
        (None, Some(_)) => {
            return Err(format!(
                "{text}: say of what: write {text}GiB or {text}Gi, or {text} bytes as {text}B"
            ));
        }
        (None, None) => None,
    }
    .ok_or_else(wrong)
}

/// Micro-units as a decimal amount, without rounding.
pub fn money(micro: i128) -> String {
    let (sign, micro) = (if micro < 0 { "-" } else { "" }, micro.unsigned_abs());
    format!("{sign}{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

/// A moment in UTC, to the second.
pub fn moment(at: Millis) -> String {
    human::moment(at)
}

/// The text that `moment_ms` reads as that.
pub fn moment_text(at: Millis) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| format!("{} ms", at.0))
}

pub fn allocation(text: &str) -> Result<AllocationId, String> {
    AllocationId::parse(text).ok_or_else(|| format!("{text}: an allocation id is a UUID"))
}

/// An account's path.
pub fn account(text: &str) -> Result<Account, String> {
    Account::parse(text)
        .ok_or_else(|| format!("{text}: write tenant, tenant/team or tenant/team/namespace"))
}

/// A tenant's team, or one of its namespaces.
pub fn team(text: &str) -> Result<Team, String> {
    Team::parse(text).ok_or_else(|| format!("{text}: write team or team/namespace"))
}

/// What limits speak of.
pub fn resource(text: &str) -> Result<QuotaResource, String> {
    QuotaResource::parse(text).ok_or_else(|| {
        format!(
            "{text}: resources are cpu, memory, gpu, gpu:<model>, storage, pods, extended:<name> and leases"
        )
    })
}

/// What budgets speak of.
pub fn budget_of(text: &str) -> Result<BudgetOf, String> {
    BudgetOf::parse(text).ok_or_else(|| format!("{text}: budgets are of money, cpu, memory or gpu"))
}

/// An amount in the way that suits the resource, in its unit.
pub fn of_resource(resource: &QuotaResource, text: &str) -> Result<i64, String> {
    match kind(resource) {
        Some(ResourceKind::Cpu) => cpu_milli(text),
        Some(ResourceKind::Memory) => bytes(text),
        Some(ResourceKind::Gpu) => thousandths(text),
        None => text
            .parse()
            .map_err(|_| format!("{text}: write a whole number")),
    }
}

/// An amount in the way that suits the budget, in its unit.
pub fn of_budget(of: &BudgetOf, text: &str) -> Result<i64, String> {
    match of {
        BudgetOf::Money => micro(text)
            .ok_or_else(|| format!("{text}: write money as 250 or 250.50, to the millionth")),
        BudgetOf::Use(kind) => of_resource(&QuotaResource::of(*kind), text),
    }
}

/// A decimal amount in millionths, without rounding.
pub fn micro(text: &str) -> Option<i64> {
    Decimal::parse(text)?.times(1_000_000)
}

/// The shortest text that `cpu_milli` and `thousandths` read as that.
pub fn milli_text(milli: i64) -> String {
    match milli % 1000 {
        0 => (milli / 1000).to_string(),
        _ => format!("{milli}m"),
    }
}

/// The shortest text that `bytes` reads as that.
pub fn bytes_text(bytes: i64) -> String {
    let units = MEMORY_UNITS
        .iter()
        .filter(|(_, unit)| unit.count_ones() == 1);
    let mut units = units.filter(|(name, unit)| name.len() == 2 || *unit == 1);
    match units.find(|(_, unit)| bytes % unit == 0) {
        Some((name, unit)) if bytes > 0 => format!("{}{name}", bytes / unit),
        _ => bytes.to_string(),
    }
}

/// The shortest text that `duration_ms` reads as that.
pub fn duration_text(ms: i64) -> String {
    let units = [("d", DAY_MS), ("h", HOUR_MS), ("m", 60_000), ("s", 1000)];
    match units.iter().find(|(_, unit)| ms % unit == 0) {
        Some((name, unit)) if ms > 0 => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
        Some(_) => "0s".to_owned(),
    }
}

/// The shortest text that `micro` reads as that.
pub fn micro_text(micro: i64) -> String {
    let text = money(micro.into());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The shortest text that `of_resource` reads as that.
pub fn resource_text(resource: &QuotaResource, amount: i64) -> String {
    match kind(resource) {
        Some(ResourceKind::Cpu | ResourceKind::Gpu) => milli_text(amount),
        Some(ResourceKind::Memory) => bytes_text(amount),
        None => amount.to_string(),
    }
}

/// The shortest text that `of_budget` reads as that.
pub fn budget_text(of: &BudgetOf, amount: i64) -> String {
    match of {
        BudgetOf::Money => micro_text(amount),
        BudgetOf::Use(kind) => resource_text(&QuotaResource::of(*kind), amount),
    }
}

fn kind(resource: &QuotaResource) -> Option<ResourceKind> {
    match resource {
        QuotaResource::Cpu => Some(ResourceKind::Cpu),
        QuotaResource::Memory => Some(ResourceKind::Memory),
        QuotaResource::Gpu | QuotaResource::GpuModel(_) => Some(ResourceKind::Gpu),
        QuotaResource::Storage
        | QuotaResource::Pods
        | QuotaResource::Extended(_)
        | QuotaResource::Leases => None,
    }
}

/// What one billed unit is called and how many of the resource's units it has.
pub fn human(kind: ResourceKind, amount: u64) -> String {
    let unit = match kind {
        ResourceKind::Cpu => "cores",
        // Thousandths of a GiB say little of it.
        ResourceKind::Memory if (1..1 << 30).contains(&amount) => {
            return human::memory(amount.into());
        }
        ResourceKind::Memory => "GiB",
        ResourceKind::Gpu => "GPUs",
    };
    format!("{} {unit}", billed(kind, amount.into()))
}

fn billed(kind: ResourceKind, amount: u128) -> String {
    let thousandths = amount.saturating_mul(1000) / u128::from(kind.per_billed_unit());
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

/// An amount of a resource in the unit that people count it in, which its column need not repeat but for memory: that has
/// many.
pub fn plain(resource: &QuotaResource, amount: u128) -> String {
    match kind(resource) {
        Some(ResourceKind::Memory) => human::memory(amount),
        Some(kind) => billed(kind, amount),
        None => amount.to_string(),
    }
}

/// What `plain` counts in; none: it says so itself, or counts the thing itself.
pub fn unit(resource: &QuotaResource) -> Option<&'static str> {
    match kind(resource)? {
        ResourceKind::Cpu => Some("cores"),
        ResourceKind::Memory => None,
        ResourceKind::Gpu => Some("GPUs"),
    }
}

/// An amount of a budget.
pub fn spent(of: &BudgetOf, amount: u128) -> String {
    match of {
        BudgetOf::Money => money(i128::try_from(amount).unwrap_or(i128::MAX)),
        // Thousandths of a GiB say little of it.
        BudgetOf::Use(ResourceKind::Memory) if (1..1 << 30).contains(&amount) => {
            format!("{}-hours", human::memory(amount))
        }
        BudgetOf::Use(kind) => {
            let unit = match kind {
                ResourceKind::Cpu => "core-hours",
                ResourceKind::Memory => "GiB-hours",
                ResourceKind::Gpu => "GPU-hours",
            };
            format!("{} {unit}", billed(*kind, amount))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cores_are_read_to_the_thousandth() {
        let check = |text, expected| assert_eq!(milli(text), expected, "{text}");
        check("4", Some(4000));
        check("0.5", Some(500));
        check("1.250", Some(1250));
        check("1.2500", Some(1250));
        check("500m", Some(500));
        check("0", Some(0));
        check("9223372036854775", Some(9_223_372_036_854_775_000));
        for bad in [
            "",
            "x",
            "m",
            "-1",
            "+1",
            "1.",
            ".5",
            "1.2345",
            "0.5m",
            "1e3",
            "4 ",
            "9223372036854775807",
            "340282366920938463463374607431768211456",
        ] {
            check(bad, None);
            let said = cpu_milli(bad).unwrap_err();
            assert!(
                said.ends_with("write cores as 4 or 0.5, or millicores as 500m"),
                "{said}"
            );
        }
        assert_eq!(thousandths("0.5"), Ok(500));
    }

    #[test]
    fn memory_has_a_unit() {
        let check = |text, expected: i64| assert_eq!(bytes(text), Ok(expected), "{text}");
        check("16GiB", 16 << 30);
        check("16Gi", 16 << 30);
        check("64Mi", 64 << 20);
        check("1.5Gi", 3 << 29);
        check("0.1Ki", 103);
        check("2Ti", 2 << 40);
        check("1Pi", 1 << 50);
        check("1KiB", 1 << 10);
        check("128M", 128_000_000);
        check("2G", 2_000_000_000);
        check("3k", 3000);
        check("7B", 7);
        check("0", 0);
        for bad in [
            "",
            "GiB",
            "1GB",
            "1gi",
            "1.5B",
            "1m",
            "1e3",
            "-1Gi",
            "1 Gi",
            "1.Gi",
            "9223372036854775807KiB",
            "8388608Ti",
            "1MiBB",
        ] {
            let said = bytes(bad).unwrap_err();
            assert!(said.contains("write memory as 16GiB or 16Gi"), "{said}");
        }
        let said = "16: say of what: write 16GiB or 16Gi, or 16 bytes as 16B";
        assert_eq!(bytes("16"), Err(said.to_owned()));
        assert_eq!(money(1_234_567), "1.234567");
        assert_eq!(human(ResourceKind::Gpu, 460), "0.460 GPUs");
        assert_eq!(moment(Millis(0)), "1970-01-01T00:00:00Z");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(milli in 0..i64::MAX, byte in 0..i64::MAX, mib in 0..i64::MAX >> 20) {
            prop_assert_eq!(cpu_milli(&format!("{milli}m")), Ok(milli));
            prop_assert_eq!(cpu_milli(&format!("{}.{:03}", milli / 1000, milli % 1000)), Ok(milli));
            prop_assert_eq!(bytes(&format!("{byte}B")), Ok(byte));
            prop_assert_eq!(bytes(&format!("{mib}Mi")), Ok(mib << 20));
            prop_assert_eq!(bytes(&format!("{mib}MiB")), Ok(mib << 20));
            prop_assert_eq!(micro(&money(milli.into())), Some(milli));
            prop_assert_eq!(cpu_milli(&milli_text(milli)), Ok(milli));
            prop_assert_eq!(bytes(&bytes_text(byte)), Ok(byte));
            prop_assert_eq!(bytes(&bytes_text(mib << 20)), Ok(mib << 20));
            prop_assert_eq!(micro(&micro_text(milli)), Some(milli));
            prop_assert_eq!(duration_ms(&duration_text(milli)), Ok(milli));
        }

        #[test]
        fn no_text_is_too_strange(text in ".*") {
            let _ = (cpu_milli(&text), bytes(&text), micro(&text), duration_ms(&text));
        }
    }

    #[test]
    fn the_past_is_a_moment_or_so_long_ago() {
        let ms = |text: &str| past(text).map(|past| past.ms(10_000_000));
        assert_eq!(ms("2h"), Ok(2_800_000));
        assert_eq!(ms("1970-01-01T00:00:01Z"), Ok(1000));
        assert!(past("yesterday").is_err());
        for (ms, expected) in [
            (-5, "0s"),
            (59_999, "59s"),
            (61_000, "1m1s"),
            (3_660_000, "1h1m"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(age(ms), expected);
        }
    }

    #[test]
    fn texts_are_as_short_as_they_can_be() {
        assert_eq!(
            (milli_text(4000), milli_text(1500)),
            ("4".into(), "1500m".into())
        );
        for (amount, text) in [
            (0, "0"),
            (16 << 30, "16Gi"),
            (3 << 29, "1536Mi"),
            (7, "7B"),
            (1 << 50, "1Pi"),
        ] {
            assert_eq!(bytes_text(amount), text);
        }
        for (ms, text) in [
            (0, "0s"),
            (1, "1ms"),
            (90_000, "90s"),
            (7_200_000, "2h"),
            (604_800_000, "7d"),
        ] {
            assert_eq!(duration_text(ms), text);
        }
        for (micro, text) in [
            (0, "0"),
            (250_500_000, "250.5"),
            (10_000_000, "10"),
            (1, "0.000001"),
        ] {
            assert_eq!(micro_text(micro), text);
        }
    }

    #[test]
    fn money_is_read_to_the_millionth() {
        for (text, expected) in [
            ("0", 0),
            ("250", 250_000_000),
            ("250.5", 250_500_000),
            ("0.000001", 1),
        ] {
            assert_eq!(micro(text), Some(expected), "{text}");
        }
        for bad in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "1.0000001",
            "1e3",
            "9223372036854775807",
        ] {
            assert_eq!(micro(bad), None, "{bad}");
        }
        assert_eq!(spent(&BudgetOf::Money, 1), "0.000001");
    }

    #[test]
    fn amounts_suit_their_resource() {
        let check = |resource: &str, text, amount, shown| {
            let resource = QuotaResource::parse(resource).unwrap();
            assert_eq!(of_resource(&resource, text), Ok(amount));
            assert_eq!(plain(&resource, amount.unsigned_abs().into()), shown);
        };
        check("cpu", "1500m", 1500, "1.500");
        check("memory", "2GiB", 2 << 30, "2 GiB");
        check("memory", "512MiB", 512 << 20, "512 MiB");
        check("gpu:T4", "8", 8000, "8.000");
        check("extended:fpga", "8", 8, "8");
        let hours = BudgetOf::Use(ResourceKind::Gpu);
        assert_eq!(of_budget(&hours, "8"), Ok(8000));
        assert_eq!(spent(&hours, 1500), "1.500 GPU-hours");
        let hours = BudgetOf::Use(ResourceKind::Memory);
        assert_eq!(spent(&hours, 64 << 20), "64 MiB-hours");
        assert_eq!(spent(&hours, 3 << 29), "1.500 GiB-hours");
        assert_eq!(spent(&hours, 0), "0.000 GiB-hours");
    }

    #[test]
    fn durations_and_moments_have_units_and_zones() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("90s", 90_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for bad in ["", "90", "s", "-1s", "1.5h", "9223372036854775807h", "1 s"] {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
        assert_eq!(moment_ms("1970-01-01T00:00:01Z"), Ok(1000));
        assert_eq!(moment_ms("1970-01-01T01:00:00.5+01:00"), Ok(500));
        assert_eq!(moment_ms("1970-01-02"), Ok(86_400_000));
        assert_eq!(moment_ms("1970-01-01 00:01"), Ok(60_000));
        assert_eq!(moment_ms("1970-01-01T00:00:01"), Ok(1000));
        assert_eq!(to_come("2h"), Ok(ToCome::In(7_200_000)));
        assert_eq!(to_come("1970-01-02"), Ok(ToCome::At(86_400_000)));
        for bad in [
            "",
            "now",
            "2026-01",
            "2026-02-30",
            "2026-01-31 8:00",
            "31.01.2026",
        ] {
            assert!(moment_ms(bad).is_err(), "{bad}");
        }
    }
}
