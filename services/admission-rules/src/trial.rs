//! Changes of settings, judged in turn as the inbox would judge them, without a record of any.

use crate::{Admission, ChangeRequest};
use vocab::{AdminChange, Millis, Refusal};

/// The settings that operators' changes are judged against.
#[derive(Debug, Clone, Default)]
pub struct SettingsTrial(Admission);

impl SettingsTrial {
    /// Takes over a setting of the cell and its version.
    pub fn stands(&mut self, request: &ChangeRequest, version: u64) -> Result<(), Refusal> {
        let change = request.read(Millis(0))?;
        self.0.holds(&change, version);
        Ok(())
    }

    /// Judges a change against the state that all earlier ones leave, and returns the version that it would make.
    pub fn judge(&mut self, request: &ChangeRequest, now: Millis) -> Result<u64, Refusal> {
        let (change, version) = self.0.check_admin(request, now)?;
        self.0.holds(&change, version);
        Ok(version)
    }
}

impl Admission {
    /// Takes over the setting that a change makes, with its version.
    fn holds(&mut self, change: &AdminChange, version: u64) {
        match change {
            AdminChange::Tenant(set) => self.tenant_set(set),
            AdminChange::Queue(set) => self.queue_set(set),
            AdminChange::PriorityClass(set) => self.class_set(set),
            AdminChange::Period(set) => self.closed_through = Some(set.month),
            AdminChange::Quota(_)
            | AdminChange::Budget(_)
            | AdminChange::Rate(_)
            | AdminChange::Scheduling(_)
            | AdminChange::Cordon(_)
            | AdminChange::Taints(_)
            | AdminChange::Reservation(_)
            | AdminChange::Node(_) => {}
        }
        self.settings.stands(change, version);
    }
}
