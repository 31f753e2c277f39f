//! Whose turn it is to share: the queue that a submit waits in, and the class that its priority comes from.

use crate::{
    Admission,
    check::{optional, token},
    settings::Closable,
};
use vocab::{Refusal, Rule, Token};

impl Admission {
    /// None is the tenant's own queue, which is there without an operator. A name that is not one's own must have been
    /// set, also when it is another tenant's: who has a queue is nobody else's business.
    pub(super) fn check_queue(
        &self,
        tenant: &Token,
        queue: &str,
    ) -> Result<Option<Token>, Refusal> {
        let field = "queue";
        let Some(queue) = optional(queue, field)?.filter(|queue| queue != tenant) else {
            self.closed.check(Closable::Queue(tenant.clone()))?;
            return Ok(None);
        };
        let Some(known) = self.settings.queues.get(&queue) else {
            return Err(Refusal::new(Rule::QueueUnknown, field));
        };
        if known.tenants.binary_search(tenant).is_err() {
            return Err(Refusal::new(Rule::QueueForbidden, field));
        }
        self.closed.check(Closable::Queue(queue.clone()))?;
        Ok(Some(queue))
    }

    /// With a class the priority is the class's, and a second one beside it is refused.
    pub(super) fn check_class(
        &self,
        tenant: &Token,
        class: &str,
        priority: i32,
    ) -> Result<(Option<Token>, i32), Refusal> {
        if class.is_empty() {
            return Ok((None, priority));
        }
        let class = token(class, "priority_class")?;
        let Some(value) = self.settings.classes.get(&class) else {
            return Err(Refusal::new(Rule::PriorityClassUnknown, "priority_class"));
        };
        let allowed = self.settings.tenants.get(tenant).is_none_or(|settings| {
            let classes = &settings.priority_classes;
            classes.is_empty() || classes.binary_search(&class).is_ok()
        });
        if !allowed {
            return Err(Refusal::new(Rule::PriorityClassForbidden, "priority_class"));
        }
        (self.closed).check(Closable::PriorityClass(class.clone()))?;
        if priority != 0 {
            return Err(Refusal::new(Rule::SettingInvalid, "priority"));
        }
        Ok((Some(class), *value))
    }
}
