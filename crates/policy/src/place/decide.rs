//! Decides when tasks move: at each look (every beat and tick), and when a vCPU comes back.

use super::choose::WORTH;
use super::{Move, Placer, Policy, Target, Why};

impl Placer {
    /// Runs at every beat and tick: tasks leave vCPUs that may soon go off, and tasks that no longer need a place are
    /// released.
    pub(super) fn look(&mut self) {
        // Beats of many vCPUs come close together, and one look serves them all.
        let grain_ns = self.settings.io.period_ns / 2;
        let looked = self.looked_ns.is_some_and(|looked_ns| self.now_ns.saturating_sub(looked_ns) < grain_ns);
        if looked || self.is_old() {
            return;
        }
        self.looked_ns = Some(self.now_ns);
        let now_ns = self.now_ns;
        self.tasks[..self.top].iter_mut().flatten().for_each(|task| task.io.advance(now_ns));
        self.acting = self.something_is_wrong();
        self.release_tasks_not_in_need();
        if !self.is_acting() {
            return;
        }
        self.sum_loads();
        match self.settings.policy {
            Policy::None | Policy::Pull => {}
            Policy::React => self.react(),
            Policy::Predict => self.leave_ahead(),
            Policy::Combined | Policy::Oracle | Policy::OracleParks => {
                self.leave_ahead();
                self.rescue();
            }
        }
    }

    /// Whether the current signal is too old to act on; see [`Signal::CatchUp`](crate::signal::Signal::CatchUp).
    fn is_old(&self) -> bool {
        self.now_ns < self.catch_up_ns
    }

    /// Whether some vCPU is off for a share that matters. Such a vCPU counts as calm again only below half of that
    /// share.
    fn something_is_wrong(&mut self) -> bool {
        let enough = self.settings.act_off_permille;
        for (calm, vcpu) in self.calm.iter_mut().zip(&self.vcpus) {
            let least = if *calm { enough } else { enough.div_ceil(2) };
            *calm = vcpu.off_permille(self.now_ns) < least;
        }
        let foreseen = self.settings.policy.is_oracle() && self.next_off.iter().any(Option::is_some);
        foreseen || self.calm.iter().any(|calm| !calm)
    }

    fn release_tasks_not_in_need(&mut self) {
        for task in 0..self.top {
            let Some(known) = &self.tasks[task] else { continue };
            if known.placed && !(self.is_acting() && known.io.is_io()) {
                self.release(task);
            }
        }
    }

    /// Releases all tasks and stops moving them.
    pub(super) fn halt(&mut self) {
        self.halted = true;
        (0..self.top).for_each(|task| self.release(task));
    }

    fn release(&mut self, task: usize) {
        let Some(Some(known)) = self.tasks.get_mut(task) else { return };
        if known.placed {
            known.placed = false;
            self.left.forget(task);
            self.moves.push(Move { task, from: known.on, to: Target::Home, why: Why::Release });
        }
    }

    /// Puts a task on a vCPU, if its mask and its limit of moves allow.
    fn put(&mut self, task: usize, vcpu: usize, why: Why, urgent: bool) {
        let now_ns = self.now_ns;
        let Some(Some(known)) = self.tasks.get_mut(task) else { return };
        let may = known.moved_at != self.taken && known.on != Some(vcpu) && known.mask.contains(vcpu);
        if !may || !known.limit.take(now_ns, urgent) {
            return;
        }
        known.moved_at = self.taken;
        let from = known.on.replace(vcpu);
        known.placed = true;
        let weight = known.weight();
        if let Some(from) = from.filter(|from| *from < self.vcpus.len()) {
            let until_ns = now_ns.saturating_add(self.stay_away_ns(from));
            self.left.leave(task, from, self.vcpus[from].slice(), until_ns);
            self.loads[from].permille = self.loads[from].permille.saturating_sub(weight);
            self.loads[from].tasks = self.loads[from].tasks.saturating_sub(1);
        }
        self.loads[vcpu].permille += weight;
        self.loads[vcpu].tasks += 1;
        self.moves.push(Move { task, from, to: Target::Vcpu(vcpu), why });
    }

    /// Fills the queue with the I/O tasks whose place meets `is_there`, the heaviest first, ties by number.
    fn queue_tasks(&mut self, is_there: impl Fn(&Placer, Option<usize>) -> bool) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.clear();
        let wanted =
            |task: &usize| self.task(*task).is_some_and(|known| known.io.is_io() && is_there(self, known.on));
        queue.extend((0..self.top).filter(wanted));
        queue.sort_unstable_by_key(|task| {
            (std::cmp::Reverse(self.task(*task).map_or(0, |known| known.weight())), *task)
        });
        self.queue = queue;
    }

    fn for_queue(&mut self, decide: impl Fn(&mut Placer, usize)) {
        let queue = std::mem::take(&mut self.queue);
        queue.iter().for_each(|task| decide(self, *task));
        self.queue = queue;
    }

    /// The vCPU the task is on, if the settings cover it.
    fn on(&self, task: usize) -> Option<usize> {
        self.task(task).and_then(|known| known.on).filter(|on| *on < self.vcpus.len())
    }

    /// Moves tasks off vCPUs that may go off before a later chance to leave: to a safer vCPU, or if there is none, to
    /// where the wait is short.
    fn leave_ahead(&mut self) {
        let endangered = |placer: &Placer, on: usize| placer.is_on(on) && placer.danger_ns(on) > 0;
        self.queue_tasks(|placer, on| on.is_some_and(|on| on < placer.vcpus.len() && endangered(placer, on)));
        self.for_queue(|placer, task| {
            let Some(on) = placer.on(task) else { return };
            let danger_ns = placer.danger_ns(on);
            if !placer.task(task).is_some_and(|known| placer.outweighs_move(danger_ns, known)) {
                return;
            }
            // The target must also last: even a vCPU with very short slices is safe just after it came back.
            match placer.choose(task) {
                Some(vcpu)
                    if WORTH.saturating_mul(placer.danger_ns(vcpu)) <= danger_ns
                        && WORTH.saturating_mul(placer.lasts_ns(vcpu)) >= placer.lasts_ns(on) =>
                {
                    placer.put(task, vcpu, Why::Ahead, true);
                }
                None if placer.settings.policy.parks() => {
                    let parking = placer.choose_parking(task);
                    parking.into_iter().for_each(|vcpu| placer.put(task, vcpu, Why::Park, true));
                }
                _ => {}
            }
        });
    }

    /// Whether the task waits for an I/O that must complete on a vCPU which is off. Moving the task then gains nothing.
    fn is_held(&self, task: usize) -> bool {
        let Some(known) = self.task(task).filter(|known| known.has_events && known.io.is_outstanding())
        else {
            return false;
        };
        let issued_on = known.issued.map(|(on, _)| on).or(known.on).filter(|on| *on < self.vcpus.len());
        issued_on.is_some_and(|on| !self.is_on(on))
    }

    /// Moves tasks without I/O in flight off vCPUs that are off. A task with I/O in flight stays: its I/O completes
    /// only when that vCPU is back, and then the task is better placed there.
    fn rescue(&mut self) {
        self.queue_tasks(|placer, on| on.is_some_and(|on| on < placer.vcpus.len() && !placer.is_on(on)));
        self.for_queue(|placer, task| {
            let free = placer.task(task).is_some_and(|known| known.has_events) && !placer.is_held(task);
            let best = placer.choose(task).filter(|_| free);
            best.into_iter().for_each(|best| placer.put(task, best, Why::Rescue, true));
        });
    }

    /// The negative control: moves tasks off vCPUs whose beat is late, even with I/O in flight.
    fn react(&mut self) {
        self.queue_tasks(|placer, on| on.is_some_and(|on| on < placer.vcpus.len() && !placer.is_on(on)));
        self.for_queue(|placer, task| {
            let Some(mask) = placer.mask(task) else { return };
            let live = (0..placer.vcpus.len()).filter(|vcpu| mask.contains(*vcpu) && placer.is_on(*vcpu));
            let first = live.min_by_key(|vcpu| (placer.load_permille(*vcpu, task), *vcpu));
            first.into_iter().for_each(|vcpu| placer.put(task, vcpu, Why::React, true));
        });
    }

    /// Decides what a vCPU that has come back with a fresh slice pulls.
    pub(super) fn back(&mut self, vcpu: usize) {
        if !self.is_acting() || self.is_old() {
            return;
        }
        self.sum_loads();
        match self.settings.policy {
            Policy::None | Policy::React | Policy::Predict => {}
            Policy::Pull => {
                self.queue_tasks(|_, _| true);
                self.for_queue(|placer, task| placer.put(task, vcpu, Why::Pull, true));
            }
            Policy::Combined | Policy::Oracle | Policy::OracleParks => {
                self.queue_tasks(|_, _| true);
                self.for_queue(|placer, task| placer.pull(task, vcpu));
            }
        }
    }

    /// Moves the task to the vCPU that is back, or to a better one, if that is worth it.
    fn pull(&mut self, task: usize, back: usize) {
        let Some(best) = self.choose(task) else { return };
        let Some(on) = self.on(task).filter(|on| self.is_on(*on)) else {
            if !self.is_held(task) {
                self.put(task, best, Why::Pull, true);
            }
            return;
        };
        if on == back {
            // The task waited for this vCPU. If its slices are very short, leave for one that lasts longer.
            if self.lasts_ns(best) >= WORTH.saturating_mul(self.lasts_ns(back)) {
                self.put(task, best, Why::Pull, false);
            }
            return;
        }
        let here_ns = self.share_ns(task, on);
        if self.share_ns(task, best) >= WORTH.saturating_mul(here_ns) {
            return self.put(task, best, Why::Pull, false);
        }
        let weight = self.task(task).map_or(0, |known| known.weight());
        let (here, there) = (self.load_permille(on, task), self.load_permille(back, task));
        // Spread only if the loads differ by at least the task's own weight, or the task would go back and forth.
        if here >= there + weight && self.could_take(task, back) && self.share_ns(task, back) >= here_ns {
            self.put(task, back, Why::Spread, false);
        }
    }
}
