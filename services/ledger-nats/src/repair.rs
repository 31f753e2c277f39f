//! What a ledger that lost its end is, who has seen more of it, and what can be done. Says so in plain words: nothing is done
//! before a person has approved exactly these.

use crate::copy::Copy;
use ledger::{Bus, BusError, Chain, Digest, LedgerId, Tail, Witness};
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};
use vocab::fact::AllocationRequested;
use vocab::{AllocationNo, CellNo, Event, Kinds, Lsn, Writer};

/// The ledger as it stands.
#[derive(Debug, Clone)]
pub struct Survey {
    pub ledger: LedgerId,
    /// Of each record, by its position from 1 on.
    pub digests: Vec<Digest>,
    /// The first record that does not continue what is before it.
    pub fault: Option<String>,
}

/// Reads all of it.
pub async fn survey<B: Bus>(bus: &B) -> Result<Survey, BusError> {
    let mut found = Survey {
        ledger: bus.ledger_id().await?,
        digests: Vec::new(),
        fault: None,
    };
    let end = bus.end().await?;
    let mut chain = Chain::default();
    if end > Lsn(0) {
        let mut records = bus.follow(Lsn(1)).await?;
        while found.end() < end {
            let record = records.recv().await?;
            found.digests.push(Digest::of(&record.frame));
            if found.fault.is_none() {
                let accepted = chain.accept(&record, Kinds::ALL);
                found.fault = accepted.err().map(|error| error.to_string());
            }
        }
    }
    Ok(found)
}

impl Survey {
    pub fn end(&self) -> Lsn {
        Lsn(self.digests.len() as u64)
    }

    fn digest(&self) -> String {
        let last = self.digests.last();
        last.map_or_else(|| "nothing".to_owned(), Digest::to_string)
    }

    fn agrees(&self, witness: &Witness) -> bool {
        let at = usize::try_from(witness.lsn.0).ok();
        let at = at.and_then(|at| at.checked_sub(1));
        match (at, witness.digest) {
            (None, _) => true,
            (Some(at), None) => at < self.digests.len(),
            (Some(at), Some(digest)) => self.digests.get(at) == Some(&digest),
        }
    }

    /// The first position at which a copy has something else.
    pub fn parts_from(&self, copy: &[Digest]) -> Option<Lsn> {
        let mut both = self.digests.iter().zip(copy);
        let at = both.position(|(ledger, copy)| ledger != copy)?;
        Some(Lsn(at as u64 + 1))
    }
}

/// A copy, and what of it the ledger lacks.
#[derive(Debug, Clone)]
pub struct CopyFound {
    pub end: Lsn,
    digest: Option<Digest>,
    /// Where ledger and copy part, if they do.
    parts: Option<Lsn>,
    lost: Lost,
}

impl CopyFound {
    pub fn of(copy: &Copy, survey: &Survey, cell: CellNo) -> Result<Self, crate::CopyError> {
        let parts = survey.parts_from(copy.digests());
        let first = parts.unwrap_or(Lsn(survey.end().0 + 1));
        let mut lost = Lost::default();
        copy.each(first, |_, frame| {
            lost.frames += 1;
            for (at, event) in frame.placed() {
                lost.see(AllocationNo(at.no.0), event, cell);
            }
        })?;
        Ok(Self {
            end: copy.end(),
            digest: copy.witness().digest,
            parts,
            lost,
        })
    }
}

/// What stands in the copy and not on the ledger.
#[derive(Debug, Clone, Default)]
pub struct Lost {
    frames: u64,
    events: BTreeMap<Writer, u64>,
    ended: u64,
    allocations: Vec<String>,
}

/// Allocations that are named one by one.
const NAMED_MAX: usize = 20;

impl Lost {
    fn see(&mut self, no: AllocationNo, event: &Event, cell: CellNo) {
        *self.events.entry(event.writer()).or_default() += 1;
        match event {
            Event::AllocationRequested(AllocationRequested {
                operation, spec, ..
            }) => {
                let name = spec.name.as_ref().map_or("", |name| name.as_str());
                let (id, tenant) = (no.id(cell), &operation.tenant);
                self.allocations.push(format!("{id} of {tenant} {name}"));
            }
            Event::AllocationEnded(_) => self.ended += 1,
            _ => {}
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events: u64 = self.events.values().sum();
        writeln!(
            f,
            "    {} frames, {events} events, {} allocations requested, {} allocations ended",
            self.frames,
            self.allocations.len(),
            self.ended
        )?;
        for (writer, events) in &self.events {
            writeln!(f, "    {:<15} {events} events", writer.name())?;
        }
        for allocation in self.allocations.iter().take(NAMED_MAX) {
            writeln!(f, "    allocation {}", allocation.trim_end())?;
        }
        match self.allocations.len().checked_sub(NAMED_MAX) {
            Some(more) if more > 0 => writeln!(f, "    and {more} more"),
            _ => Ok(()),
        }
    }
}

/// All that is known of a ledger and of what was read of it.
#[derive(Debug, Clone)]
pub struct Findings {
    pub survey: Survey,
    pub witnesses: Vec<Witness>,
    /// Who could not be asked, and why; and what tables hold beyond the ledger's end.
    pub notes: Vec<String>,
    pub copy: Option<CopyFound>,
}

/// What a person may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Append the missing frames from the copy.
    Restore,
    /// Make everything anew of the ledger as it stands.
    Adopt,
}

/// Whether there is anything to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The ledger holds what everybody has read of it.
    Sound,
    /// Somebody has read something else.
    Contradicted,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    #[error("the ledger holds what everybody has read of it: there is nothing to repair")]
    NothingToDo,
    #[error("to restore, name a copy of the ledger")]
    NoCopy,
    #[error("the copy ends at {}, not behind the ledger's end at {}: it has nothing to restore", .copy.0, .ledger.0)]
    NothingInCopy { copy: Lsn, ledger: Lsn },
    #[error(
        "ledger and copy part at lsn {}: others stand there now, and what stands on a stream cannot be taken from it. Not supported. \
         Adopt the ledger as it stands; or delete its stream, make it by `apportion cell init`, and restore all of the copy", .0.0
    )]
    Parted(Lsn),
    #[error(
        "the ledger's own chain is broken ({0}), so nobody could read it, shorter or longer. Not supported. Delete its stream, make \
         it by `apportion cell init`, and restore all of a copy"
    )]
    Broken(String),
}

impl Findings {
    fn contradicting(&self) -> impl Iterator<Item = &Witness> {
        let contradicts = |witness: &&Witness| !self.survey.agrees(witness);
        self.witnesses.iter().filter(contradicts)
    }

    pub fn found(&self) -> Found {
        let end = self.survey.end();
        let of_copy = |copy: &CopyFound| copy.parts.is_some() || copy.end > end;
        let sound = self.survey.fault.is_none()
            && self.contradicting().next().is_none()
            && !self.copy.as_ref().is_some_and(of_copy);
        if sound {
            Found::Sound
        } else {
            Found::Contradicted
        }
    }

    /// Whether it can be gone.
    pub fn can(&self, way: Way) -> Result<(), NoWay> {
        if self.found() == Found::Sound {
            return Err(NoWay::NothingToDo);
        }
        if let Some(fault) = &self.survey.fault {
            return Err(NoWay::Broken(fault.clone()));
        }
        if way == Way::Adopt {
            return Ok(());
        }
        let ledger = self.survey.end();
        match &self.copy {
            None => Err(NoWay::NoCopy),
            Some(CopyFound {
                parts: Some(lsn), ..
            }) => Err(NoWay::Parted(*lsn)),
            Some(CopyFound { end: copy, .. }) if *copy <= ledger => Err(NoWay::NothingInCopy {
                copy: *copy,
                ledger,
            }),
            Some(_) => Ok(()),
        }
    }

    /// Of exactly this plan: of all that was found, and of the way.
    pub fn approval(&self, way: Way) -> Digest {
        Digest::of(format!("{way:?}\n{self}").as_bytes())
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (end, digest) = (self.survey.end(), self.survey.digest());
        writeln!(
            f,
            "The ledger {} ends at lsn {}, {digest}.",
            self.survey.ledger.0, end.0
        )?;
        if let Some(fault) = &self.survey.fault {
            writeln!(f, "Its chain is broken: {fault}.")?;
        }
        // A copy does not mend everything for them.
        let beyond_copy = |witness: &Witness| {
            let copy = self.copy.as_ref();
            copy.is_some_and(|copy| witness.lsn > end.max(copy.end))
        };
        let mut lines = Vec::new();
        for witness in &self.witnesses {
            let mut line = format!(
                "  {} has read it up to lsn {}: ",
                witness.who, witness.lsn.0
            );
            let says = match self.survey.agrees(witness) {
                true => "agrees",
                false if beyond_copy(witness) => "BEYOND THE END, AND BEYOND THE COPY'S",
                false if witness.lsn > end => "BEYOND THE END",
                false => "SOMETHING ELSE STANDS THERE NOW",
            };
            // Writing to a string does not fail.
            let _ = write!(line, "{says}");
            lines.push(line);
        }
        lines.sort();
        for line in lines {
            writeln!(f, "{line}")?;
        }
        if let Some(copy) = &self.copy {
            let digest = copy.digest.map_or_else(String::new, |d| d.to_string());
            let says = match copy.parts {
                Some(lsn) => format!("PARTS FROM THE LEDGER at lsn {}", lsn.0),
                None if copy.end > end => "holds what the ledger lacks".to_owned(),
                None => "agrees".to_owned(),
            };
            writeln!(f, "  the copy ends at lsn {} {digest}: {says}", copy.end.0)?;
            if copy.lost.frames > 0 {
                writeln!(f, "  In the copy and not on the ledger:")?;
                write!(f, "{}", copy.lost)?;
            }
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(text: &str) -> Vec<Digest> {
        text.bytes().map(|byte| Digest::of(&[byte])).collect()
    }

    /// A ledger, a copy and what others have read, a letter for each record.
    fn findings(ledger: &str, copy: Option<&str>, read: &[&str]) -> Findings {
        let survey = Survey {
            ledger: LedgerId(1),
            digests: digests(ledger.trim_end_matches('!')),
            fault: ledger.ends_with('!').then(|| "a fault".to_owned()),
        };
        let copy = copy.map(|copy| CopyFound {
            end: Lsn(copy.len() as u64),
            digest: digests(copy).last().copied(),
            parts: survey.parts_from(&digests(copy)),
            lost: Lost::default(),
        });
        let witness = |read: &&str| Witness {
            who: "a witness".to_owned(),
            lsn: Lsn(read.len() as u64),
            digest: digests(read)
                .last()
                .copied()
                .filter(|_| !read.ends_with('?')),
        };
        Findings {
            survey,
            witnesses: read.iter().map(witness).collect(),
            notes: Vec::new(),
            copy,
        }
    }

    /// What can be done.
    fn check(ledger: &str, copy: Option<&str>, read: &[&str], expected: &str) {
        let findings = findings(ledger, copy, read);
        let said = |way| match findings.can(way) {
            Ok(()) => "yes",
            Err(NoWay::NothingToDo) => "nothing to do",
            Err(NoWay::NoCopy) => "no copy",
            Err(NoWay::NothingInCopy { .. }) => "nothing in it",
            Err(NoWay::Parted(_)) => "parted",
            Err(NoWay::Broken(_)) => "broken",
        };
        let found = format!("{}, {}", said(Way::Restore), said(Way::Adopt));
        assert_eq!(
            found,
            expected,
            "{ledger} {copy:?} {read:?}",
            copy = findings.copy
        );
    }

    #[test]
    fn what_can_be_done_follows_from_what_was_read() {
        check("", None, &[], "nothing to do, nothing to do");
        check(
            "abc",
            None,
            &["ab", "abc", ""],
            "nothing to do, nothing to do",
        );
        check("abc", Some("ab"), &["abc"], "nothing to do, nothing to do");
        // Shorter than what was read.
        check("abc", None, &["abcd"], "no copy, yes");
        check("abc", None, &["abc?"], "no copy, yes");
        check("abc", Some("abcde"), &["abcd"], "yes, yes");
        check("abc", Some("abc"), &["abcd"], "nothing in it, yes");
        // Also when nobody but the copy knows.
        check("abc", Some("abcd"), &[], "yes, yes");
        check("", Some("abcd"), &[], "yes, yes");
        // It has grown again.
        check("abxy", None, &["abc"], "no copy, yes");
        check("abxy", Some("abcd"), &["abc"], "parted, yes");
        check("abc!", Some("abcd"), &["abcd"], "broken, broken");
    }

    #[test]
    fn a_witness_who_has_read_more_than_the_copy_holds_is_told_apart() {
        let check = |copy: Option<&str>, read: &str, says: &str| {
            let shown = findings("ab", copy, &[read]).to_string();
            let line = shown.lines().find(|line| line.contains("a witness"));
            assert_eq!(
                line.and_then(|line| line.split(": ").nth(1)),
                Some(says),
                "{shown}"
            );
        };
        check(Some("abc"), "ab", "agrees");
        check(None, "abc", "BEYOND THE END");
        check(Some("abc"), "abc", "BEYOND THE END");
        check(Some("abc"), "abcd", "BEYOND THE END, AND BEYOND THE COPY'S");
        check(Some("a"), "abc", "BEYOND THE END, AND BEYOND THE COPY'S");
        check(Some("abc"), "ax", "SOMETHING ELSE STANDS THERE NOW");
    }

    #[test]
    fn what_was_approved_is_one_plan_and_no_other() {
        let plan = findings("ab", None, &["abc?"]).approval(Way::Adopt);
        assert_eq!(plan, findings("ab", None, &["abc?"]).approval(Way::Adopt));
        assert_ne!(plan, findings("ab", None, &["abc?"]).approval(Way::Restore));
        assert_ne!(plan, findings("ab", None, &["abcd?"]).approval(Way::Adopt));
        assert_ne!(plan, findings("ax", None, &["abc?"]).approval(Way::Adopt));
        assert_ne!(plan, findings("abc", None, &["abcd?"]).approval(Way::Adopt));
    }
}
