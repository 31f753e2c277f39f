//! The flags of other commands, for a request that is tried and not sent.

use crate::{Failure, operate, submit};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use schemas::v1;
use std::{any::Any, marker::PhantomData};

/// What was given for the flags of `T`: the same names, forms and defaults.
pub struct Flags<T> {
    given: ArgMatches,
    of: PhantomData<T>,
}

impl<T: Args> FromArgMatches for Flags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            given: matches.clone(),
            of: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.given = matches.clone();
        Ok(())
    }
}

impl<T: Args> Args for Flags<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T> Flags<T> {
    fn given<V: Any + Clone + Send + Sync>(&self, id: &str) -> Result<Option<V>, Failure> {
        Ok(self.given.try_get_one::<V>(id)?.cloned())
    }

    /// Given, or the default of its type.
    fn one<V: Any + Clone + Send + Sync + Default>(&self, id: &str) -> Result<V, Failure> {
        Ok(self.given(id)?.unwrap_or_default())
    }

    fn all<V: Any + Clone + Send + Sync>(&self, id: &str) -> Result<Vec<V>, Failure> {
        let values = self.given.try_get_many::<V>(id)?;
        Ok(values.into_iter().flatten().cloned().collect())
    }
}

impl Flags<operate::QueueSet> {
    pub fn request(&self) -> Result<v1::SetQueue, Failure> {
        Ok(v1::SetQueue {
            queue: self.one("queue")?,
            parent: self.one("parent")?,
            weight_milli: self.given("weight")?,
            limits: self.all("limits")?,
            tenants: self.all("tenants")?,
            order: self.one("order")?,
            placement: self.given("placement")?,
            expected_version: self.given("expected_version")?,
        })
    }
}

impl Flags<operate::PriorityClass> {
    pub fn request(&self) -> Result<v1::SetPriorityClass, Failure> {
        Ok(v1::SetPriorityClass {
            priority_class: self.one("class")?,
            value: self.one("value")?,
            preemptible: self.one("preemptible")?,
            preempts: self.one("preempts")?,
            grace_ms: self.one("grace")?,
            placement: self.given("placement")?,
            expected_version: self.given("expected_version")?,
        })
    }
}

impl Flags<operate::Policy> {
    pub fn request(&self) -> Result<v1::SetScheduling, Failure> {
        Ok(v1::SetScheduling {
            placement: self.one("placement")?,
            half_life_ms: self.one("half_life")?,
            fair_share_preemption: self.given("fair_share_preemption")?,
            protected_milli: self.one("protected")?,
            preemptions_per_minute: self.given("preemptions_per_minute")?,
            aging_ms: self.one("aging")?,
            backfill: self.one("backfill")?,
            backoff_ms: self.given("backoff")?,
            backoff_ms_max: self.given("backoff_max")?,
            expected_version: self.given("expected_version")?,
        })
    }
}

impl<T> Flags<T> {
    fn cordon(&self, cordoned: bool) -> Result<v1::SetCordon, Failure> {
        Ok(v1::SetCordon {
            node: self.one("node")?,
            cordoned,
            expected_version: self.given("expected_version")?,
        })
    }

    fn reservation(
        &self,
        wanted: Option<v1::ReservationRequest>,
    ) -> Result<v1::SetReservation, Failure> {
        Ok(v1::SetReservation {
            reservation: self.one("reservation")?,
            wanted,
            expected_version: self.given("expected_version")?,
        })
    }
}

impl Flags<operate::Cordon> {
    pub fn request(&self) -> Result<v1::SetCordon, Failure> {
        self.cordon(true)
    }
}

impl Flags<operate::Uncordon> {
    pub fn request(&self) -> Result<v1::SetCordon, Failure> {
        self.cordon(false)
    }
}

impl Flags<operate::Reserve> {
    pub fn request(&self) -> Result<v1::SetReservation, Failure> {
        self.reservation(Some(v1::ReservationRequest {
            queue: self.one("queue")?,
            from_ms: self.one("from")?,
            until_ms: self.one("until")?,
            nodes: self.one("nodes")?,
            selector: self.all("selector")?,
        }))
    }
}

impl Flags<operate::Unreserve> {
    pub fn request(&self) -> Result<v1::SetReservation, Failure> {
        self.reservation(None)
    }
}

impl Flags<submit::Submit> {
    pub fn tenant(&self) -> Result<String, Failure> {
        self.one("tenant")
    }

    pub fn request(&self) -> Result<v1::Submit, Failure> {
        let dependencies = |id, success| -> Result<Vec<_>, Failure> {
            let all = self.all::<String>(id)?.into_iter();
            let of = |allocation_id| v1::DependencyRequest {
                allocation_id,
                success,
            };
            Ok(all.map(of).collect())
        };
        let mut depends_on = dependencies("after", false)?;
        depends_on.extend(dependencies("after_success", true)?);
        Ok(v1::Submit {
            job_set: self.one("job_set")?,
            name: self.one("name")?,
            priority: self.one("priority")?,
            cpu_milli: self.one("cpu")?,
            memory_bytes: self.one("memory")?,
            gpu_count: self.one("gpus")?,
            gpu_milli: self.one("gpu_milli")?,
            gpu_models: self.all("gpu_models")?,
            queue: self.one("queue")?,
            priority_class: self.one("priority_class")?,
            extended: self.all("extended")?,
            rules: self.rules()?,
            gang: self.gang()?,
            depends_on,
            retries: self.one("retries")?,
            never_requeue: self.one("never_requeue")?,
            run_time_ms: self.one("run_time")?,
        })
    }

    fn rules(&self) -> Result<Option<v1::PlacementRules>, Failure> {
        let rules = v1::PlacementRules {
            selector: self.all("selector")?,
            tolerations: self.all("tolerations")?,
            group: self.one("group")?,
            near: self.all("near")?,
            apart: self.all("apart")?,
            spread: self.all("spread")?,
            numa: self.one::<v1::NumaPolicy>("numa")?.into(),
        };
        Ok((rules != v1::PlacementRules::default()).then_some(rules))
    }

    fn gang(&self) -> Result<Option<v1::GangRequest>, Failure> {
        let Some(name) = self.given("gang")? else {
            return Ok(None);
        };
        Ok(Some(v1::GangRequest {
            name,
            size: self.one("gang_size")?,
            min: self.one("gang_min")?,
            uniform_label: self.one("gang_uniform")?,
        }))
    }
}
