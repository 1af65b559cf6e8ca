//! Division of a scarce resource that requests hold for a while: request slots, payload memory.
//!
//! ```text
//!   total = guaranteed (half)             each member's part, by reservation and weight
//!         + lendable   (the other half)   lent in proportion to what is returned in 100 ms
//!         + reserve                       for a request that is larger than its member's part
//! ```
//!
//! A member is a VM, identified by its slot.
//!
//! - A member's part is never lent: no other member can make a claim inside the part wait.
//! - Beyond its part a member borrows, at most as much as it gave back in the last 100 ms: a member
//!   that is slow to return cannot take away what others would use.
//! - A request that fits neither part nor loan is held in the reserve, once its member holds
//!   nothing else. So a part may be smaller than one request, and a thousand members fit a small
//!   total.
//! - Loans and the reserve are given in the order of start-time fair queueing (Goyal, Vin, Cheng:
//!   "Start-time Fair Queueing", SIGCOMM 1996) by weight.
//!
//! A budget has no clock, requests or memory of its own: a frontend without payload memory uses one
//! for slots alone. Its decisions are deterministic.

mod division;
#[cfg(test)]
mod tests;

pub use division::Shares;

use division::Division;
use std::collections::VecDeque;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::time::Nanos;

/// Window of lending: a member may borrow as much as it gave back in this time.
const LENDING_WINDOW: Nanos = Nanos::from_millis(100);

/// Smallest buffer for a payload, in bytes: one page.
const SMALLEST_BUFFER: u64 = 4096;

/// Bytes of memory that a payload of `len` bytes counts for: buffers come in powers of two from one
/// page on. 0 for no bytes.
#[inline]
pub const fn buffer_bytes(len: u32) -> u64 {
    match len {
        0 => 0,
        len if len as u64 <= SMALLEST_BUFFER => SMALLEST_BUFFER,
        len => (len as u64).next_power_of_two(),
    }
}

/// Bounds of a [`Budget`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Amount that all members may hold together, without the reserve.
    pub total: u64,
    /// Amount that one member may hold; a single request may be larger.
    pub per_member: u64,
    /// Amount for requests larger than their member's part; 0: no request is.
    pub reserve: u64,
    /// False: nothing is guaranteed or lent, and claims are met in the order in which they come.
    pub divided: bool,
}

/// Reason why a member that was refused waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    None,
    /// The member's own returns: it holds as much as it may.
    Own,
    /// Room for its part: others hold more than fits beside it, since parts became smaller.
    Part,
    /// A turn among the members that borrow.
    Loan,
    /// A turn for the reserve.
    Reserve,
}

/// Source from which a claim would be taken.
enum Source {
    Own,
    Borrowed { own: u64 },
    Reserve,
}

#[derive(Clone, Debug)]
struct Member {
    shares: Shares,
    /// Guaranteed part, as of the division's `epoch`.
    part: u64,
    epoch: u32,
    /// Amount that it may hold without a closer check, as of the division's `epoch`: its part or
    /// the bound of one member, whichever is less; 0 while it waits, or holds anything beyond its
    /// part.
    ceiling: u64,
    /// Amount held of its part.
    own: u64,
    /// Amount held that is borrowed.
    loan: u64,
    /// Amount held of the reserve.
    reserved: u64,
    /// Amount given back in the running window of 100 ms.
    returned: u64,
    /// Amount given back in the window before, scaled to 100 ms.
    returned_before: u64,
    /// End of the running window: compared for every request, so kept as an end, not a start.
    window_ends: Nanos,
    /// Start of its next turn, in virtual time.
    turn: u64,
    wait: Wait,
    /// Amount of the claim that was refused.
    want: u64,
    /// Set while the member is in `ready`.
    is_announced: bool,
    /// Set for the member that [`Budget::next_ready`] returned last: no other one's turn comes
    /// before its own.
    called: bool,
}

const VACANT: Member = Member {
    shares: Shares {
        weight: 0,
        reservation: 0,
    },
    part: 0,
    epoch: 0,
    ceiling: 0,
    own: 0,
    loan: 0,
    reserved: 0,
    returned: 0,
    returned_before: 0,
    window_ends: LENDING_WINDOW,
    turn: 0,
    wait: Wait::None,
    want: 0,
    is_announced: false,
    called: false,
};

impl Member {
    fn held(&self) -> u64 {
        self.own + self.loan + self.reserved
    }

    /// Closes the window of returns if it is over.
    #[inline]
    fn roll_window(&mut self, now: Nanos) {
        if now >= self.window_ends {
            self.close_window(now);
        }
    }

    #[cold]
    fn close_window(&mut self, now: Nanos) {
        let passed = now.since(self.window_ends - LENDING_WINDOW);
        // After a pause the window is longer than 100 ms: its returns are scaled down to that
        // length.
        let returned =
            u128::from(self.returned) * u128::from(LENDING_WINDOW.0) / u128::from(passed.0);
        self.returned_before = returned as u64;
        self.returned = 0;
        self.window_ends = now + LENDING_WINDOW;
    }

    /// Returns the amount that the member may borrow at most.
    fn credit(&self) -> u64 {
        self.returned.max(self.returned_before)
    }
}

/// Scheduler of one scarce resource; see the [module](self).
#[derive(Clone, Debug)]
pub struct Budget {
    bounds: Bounds,
    lendable: u64,
    division: Division,
    members: Vec<Member>,
    /// Amount held of all parts and loans.
    used: u64,
    /// Amount of `used` that is lent.
    lent: u64,
    /// Amount held of the reserve.
    reserved: u64,
    /// Members that wait for room for their parts, in the order in which they came, and behind them
    /// those that wait for a loan, by their turns.
    loans: IndexedHeap<u64>,
    /// Members that wait for the reserve, by their turns.
    reserves: IndexedHeap<u64>,
    /// Members whose own returns made room for their refused claims.
    ready: VecDeque<u32>,
    /// Number of waits for a part so far: the key of the next one.
    waits: u64,
    /// Start of the last turn that was given.
    virtual_time: u64,
}

/// Virtual time that one unit takes at weight 1.
const TURN_SCALE: u64 = 1 << 16;

/// Bit in the keys of members that wait for a loan, which sorts them behind waits for parts.
const BORROWS: u64 = 1 << 63;

impl Budget {
    /// Creates a budget without members, for at most `members` of them.
    pub fn new(bounds: Bounds, members: usize) -> Budget {
        let guaranteed = if bounds.divided {
            bounds.total / 2
        } else {
            bounds.total
        };
        Budget {
            bounds,
            // `total` is all guaranteed or lent: the reserve comes in addition to it.
            lendable: bounds.total - guaranteed,
            division: Division::new(guaranteed),
            members: Vec::new(),
            used: 0,
            lent: 0,
            reserved: 0,
            loans: IndexedHeap::with_capacity(members),
            reserves: IndexedHeap::with_capacity(members),
            ready: VecDeque::new(),
            waits: 0,
            virtual_time: 0,
        }
    }

    /// Adds a member in a free slot.
    ///
    /// # Panics
    /// If the slot is taken.
    pub fn add(&mut self, who: usize, shares: Shares) {
        if self.members.len() <= who {
            self.members.resize(who + 1, VACANT);
            // Each member is in `ready` at most once: with this room waiting never allocates.
            let room = self.members.len() - self.ready.len();
            self.ready.reserve(room);
        }
        assert!(self.members[who].epoch == 0, "member {who} is there");
        self.division.add(&shares);
        self.members[who] = Member {
            shares,
            epoch: self.division.outdated_epoch(),
            turn: self.virtual_time,
            ..VACANT
        };
    }

    /// Changes a member's shares. What it holds stays its own.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn change(&mut self, who: usize, shares: Shares) {
        assert!(self.members[who].epoch != 0, "member {who} is not there");
        let before = self.members[who].shares;
        if before != shares {
            self.division.remove(&before);
            self.division.add(&shares);
            self.members[who].shares = shares;
            self.recheck_waiting();
        }
    }

    /// Removes a member, which must hold nothing.
    pub fn remove(&mut self, who: usize) {
        let member = &self.members[who];
        assert_eq!(member.held(), 0, "member {who} leaves with what it holds");
        assert!(member.epoch != 0, "member {who} is not there");
        let shares = member.shares;
        self.division.remove(&shares);
        self.stop_waiting(who);
        self.ready.retain(|&ready| ready as usize != who);
        self.members[who] = VACANT;
        let needed = self.members.iter().rposition(|member| member.epoch != 0);
        self.members.truncate(needed.map_or(0, |last| last + 1));
        if self.members.capacity() > 4 * self.members.len().max(16) {
            self.members.shrink_to(2 * self.members.len());
        }
        self.recheck_waiting();
    }

    /// Checks every waiting member again, after parts have become larger.
    fn recheck_waiting(&mut self) {
        for who in 0..self.members.len() {
            if self.members[who].wait != Wait::None {
                self.recheck(who);
            }
        }
    }

    /// Takes `amount` for a member if it may have it now. Otherwise the member waits: see
    /// [`Budget::next_ready`].
    #[inline]
    pub fn take_or_wait(&mut self, now: Nanos, who: usize, amount: u64) -> bool {
        let member = &mut self.members[who];
        if member.own + amount <= member.ceiling
            && member.epoch == self.division.epoch
            && self.used + amount <= self.bounds.total
            // Undivided, claims are met in their order: none passes a member that waits.
            && (self.bounds.divided || self.loans.is_empty())
        {
            member.own += amount;
            self.used += amount;
            return true;
        }
        self.take_slowly(now, who, amount)
    }

    /// Takes `amount` as [`Budget::take_or_wait`] does, but a member that is refused does not wait.
    pub fn try_take(&mut self, now: Nanos, who: usize, amount: u64) -> bool {
        self.members[who].roll_window(now);
        let Ok(source) = self.source(who, amount) else {
            return false;
        };
        self.grant(who, amount, source);
        self.set_ceiling(who);
        true
    }

    /// Sets a member's ceiling: to be called after anything but what it holds of its part has
    /// changed.
    fn set_ceiling(&mut self, who: usize) {
        let part = self.refresh_part(who);
        let per_member = self.bounds.per_member;
        let member = &mut self.members[who];
        let is_plain = member.loan == 0 && member.reserved == 0 && member.wait == Wait::None;
        member.ceiling = if is_plain { part.min(per_member) } else { 0 };
    }

    /// Takes `amount` for a member out of the reserve whatever the bounds, to resolve a deadlock in
    /// which nothing would ever be given back. The caller detects the deadlock: the engine, while
    /// the device is idle.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn overdraw(&mut self, who: usize, amount: u64) {
        assert!(self.members[who].epoch != 0, "member {who} is not there");
        self.stop_waiting(who);
        self.members[who].reserved += amount;
        self.reserved += amount;
        self.set_ceiling(who);
    }

    #[cold]
    #[inline(never)]
    fn take_slowly(&mut self, now: Nanos, who: usize, amount: u64) -> bool {
        self.members[who].roll_window(now);
        let source = self.source(who, amount);
        self.members[who].called = false;
        match source {
            Ok(source) => {
                self.stop_waiting(who);
                self.grant(who, amount, source);
                self.set_ceiling(who);
                true
            }
            Err(wait) => {
                self.wait(who, amount, wait);
                false
            }
        }
    }

    /// Guaranteed part of a member, updated to the division's epoch.
    fn refresh_part(&mut self, who: usize) -> u64 {
        let epoch = self.division.epoch;
        let member = &mut self.members[who];
        if member.epoch != epoch {
            member.part = if self.bounds.divided {
                self.division.part(&member.shares)
            } else {
                self.bounds.total
            };
            member.epoch = epoch;
            // The ceiling was that of another part.
            member.ceiling = 0;
        }
        member.part
    }

    /// Returns the source from which a claim could be taken now, or what it has to wait for.
    fn source(&mut self, who: usize, amount: u64) -> Result<Source, Wait> {
        let part = self.refresh_part(who);
        let member = &self.members[who];
        let held = member.held();
        // One that holds nothing may exceed its bound once, or a large request could never go.
        if held > 0 && held + amount > self.bounds.per_member {
            return Err(Wait::Own);
        }
        let fits = self.used + amount <= self.bounds.total;
        // Parts shrink as members come, so a member may hold more of its own than its part.
        let own = part.saturating_sub(member.own).min(amount);
        let borrowed = amount - own;
        if borrowed == 0 {
            // Undivided, no member overtakes those that wait. Divided, there is less than all parts
            // only right after they became smaller.
            let first = self.bounds.divided || member.called || self.loans.is_empty();
            return if fits && first {
                Ok(Source::Own)
            } else {
                Err(Wait::Part)
            };
        }
        let may_borrow = member.loan + borrowed <= member.credit();
        let mut wait = if may_borrow { Wait::Loan } else { Wait::Own };
        if may_borrow
            && fits
            && self.lent + borrowed <= self.lendable
            && self.is_first(&self.loans, who)
        {
            return Ok(Source::Borrowed { own });
        }
        // The reserve takes one request of a member that holds nothing, or small totals would
        // deadlock.
        if held == 0 {
            let free = self.reserved == 0 || self.reserved + amount <= self.bounds.reserve;
            if self.bounds.reserve > 0 && free && self.is_first(&self.reserves, who) {
                return Ok(Source::Reserve);
            }
            wait = match self.bounds.reserve {
                0 => Wait::Loan,
                _ => Wait::Reserve,
            };
        }
        Err(wait)
    }

    /// Returns true if no other member's turn in a queue comes before this member's.
    fn is_first(&self, queue: &IndexedHeap<u64>, who: usize) -> bool {
        let key = self.key(who);
        queue
            .peek()
            .is_none_or(|(first, member)| member == who || key <= first)
    }

    /// Key of a member among those that wait for a loan: behind all that wait for their parts.
    fn key(&self, who: usize) -> u64 {
        self.members[who].turn.max(self.virtual_time) | BORROWS
    }

    fn grant(&mut self, who: usize, amount: u64, source: Source) {
        let virtual_time = self.virtual_time;
        let member = &mut self.members[who];
        let out_of_turn = match source {
            Source::Own => {
                member.own += amount;
                self.used += amount;
                return;
            }
            Source::Borrowed { own } => {
                let borrowed = amount - own;
                member.own += own;
                member.loan += borrowed;
                self.used += amount;
                self.lent += borrowed;
                borrowed
            }
            Source::Reserve => {
                member.reserved += amount;
                self.reserved += amount;
                amount
            }
        };
        let start = member.turn.max(virtual_time);
        // Start-time fair queueing: a turn lasts as long as the amount takes at the member's
        // weight.
        let takes = out_of_turn.saturating_mul(TURN_SCALE).min(BORROWS / 2)
            / member.shares.counted_weight();
        // Below the flag bit, which keys of loans carry.
        member.turn = (start + takes.max(1)).min(BORROWS - 1);
        self.virtual_time = start;
    }

    fn wait(&mut self, who: usize, amount: u64, wait: Wait) {
        let (turn, key) = (self.members[who].turn.max(self.virtual_time), self.key(who));
        // A member that waits for the same already keeps its place in the queue.
        if self.members[who].wait != wait {
            self.stop_waiting(who);
            match wait {
                Wait::Part => {
                    self.loans.set(who, self.waits);
                    self.waits += 1;
                }
                Wait::Loan => self.loans.set(who, key),
                Wait::Reserve => self.reserves.set(who, key),
                Wait::Own | Wait::None => {}
            }
        }
        let member = &mut self.members[who];
        // The turn is kept while it waits, so that a repeated claim does not move it back.
        member.turn = turn;
        member.wait = wait;
        member.want = amount;
        member.ceiling = 0;
    }

    /// Withdraws a member's refused claim. Without effect for a member that does not wait.
    pub fn stop_waiting(&mut self, who: usize) {
        match self.members[who].wait {
            Wait::Part | Wait::Loan => {
                self.loans.remove(who);
            }
            Wait::Reserve => {
                self.reserves.remove(who);
            }
            Wait::Own | Wait::None => {}
        }
        self.members[who].wait = Wait::None;
        self.set_ceiling(who);
    }

    /// Returns `amount` of what a member holds. Panics when it holds less.
    #[inline]
    pub fn give_back(&mut self, now: Nanos, who: usize, amount: u64) {
        let member = &mut self.members[who];
        member.roll_window(now);
        // Returns are service, by which a member earns credit for loans.
        member.returned += amount;
        // Plain members hold only of their part: nothing else need be updated.
        if member.ceiling > 0 {
            assert!(member.own >= amount, "member {who} gives back too much");
            member.own -= amount;
            self.used -= amount;
            return;
        }
        self.give_back_slowly(who, amount);
    }

    /// Undoes a claim whose request was not handed in, without counting the return as service.
    /// Panics when the member holds less.
    pub fn undo(&mut self, who: usize, amount: u64) {
        self.give_back_slowly(who, amount);
    }

    #[cold]
    #[inline(never)]
    fn give_back_slowly(&mut self, who: usize, amount: u64) {
        let member = &mut self.members[who];
        // Returned in the reverse order of preference: scarce sources become free first.
        let of_reserve = member.reserved.min(amount);
        let of_loan = member.loan.min(amount - of_reserve);
        let of_own = amount - of_reserve - of_loan;
        assert!(member.own >= of_own, "member {who} gives back too much");
        member.reserved -= of_reserve;
        member.loan -= of_loan;
        member.own -= of_own;
        self.reserved -= of_reserve;
        self.lent -= of_loan;
        self.used -= of_loan + of_own;
        self.set_ceiling(who);
        if self.members[who].wait != Wait::None {
            self.recheck(who);
        }
    }

    /// Checks a waiting member's claim again: it becomes ready, or waits for what it lacks now.
    fn recheck(&mut self, who: usize) {
        let want = self.members[who].want;
        match self.source(who, want) {
            Ok(_) => {
                self.stop_waiting(who);
                if !core::mem::replace(&mut self.members[who].is_announced, true) {
                    self.ready.push_back(who as u32);
                }
            }
            Err(now_for) => self.wait(who, want, now_for),
        }
    }

    /// Returns the next waiting member whose refused claim would be met now; to be called after
    /// returns and grants until `None`. The member waits no more: one that still wants something
    /// takes it, or is refused and keeps its turn.
    #[inline]
    pub fn next_ready(&mut self) -> Option<usize> {
        if self.ready.is_empty() && self.loans.is_empty() && self.reserves.is_empty() {
            return None;
        }
        self.find_ready()
    }

    #[cold]
    #[inline(never)]
    fn find_ready(&mut self) -> Option<usize> {
        if let Some(who) = self.ready.pop_front() {
            self.members[who as usize].is_announced = false;
            self.members[who as usize].called = true;
            return Some(who as usize);
        }
        for of_reserve in [false, true] {
            let queue = if of_reserve {
                &self.reserves
            } else {
                &self.loans
            };
            let Some((_, who)) = queue.peek() else {
                continue;
            };
            let want = self.members[who].want;
            // In an undivided budget only the called member may pass those that wait.
            self.members[who].called = true;
            match self.source(who, want) {
                Ok(_) => {
                    self.stop_waiting(who);
                    return Some(who);
                }
                // Parts may have changed, and with them the reason of the wait.
                Err(wait) => {
                    self.members[who].called = false;
                    self.wait(who, want, wait);
                }
            }
        }
        None
    }

    /// Amount that a member holds.
    pub fn held(&self, who: usize) -> u64 {
        self.members.get(who).map_or(0, Member::held)
    }

    /// Guaranteed part of a member.
    pub fn guaranteed_part(&self, who: usize) -> u64 {
        if self.bounds.divided {
            self.division.part(&self.members[who].shares)
        } else {
            self.bounds.total
        }
    }

    /// Returns the amount that a member can take now in one piece, the reserve left aside.
    pub fn available(&mut self, now: Nanos, who: usize) -> u64 {
        self.members[who].roll_window(now);
        let part = self.refresh_part(who);
        let member = &self.members[who];
        let own = part.saturating_sub(member.own);
        let lent = (self.lendable - self.lent).min(member.credit().saturating_sub(member.loan));
        // A loan would have to wait behind members whose turns come first.
        let lent = if self.is_first(&self.loans, who) {
            lent
        } else {
            0
        };
        (own + lent)
            .min(self.bounds.total - self.used)
            .min(self.bounds.per_member.saturating_sub(member.held()))
    }

    /// Returns true if a member holds more than its part: a loan, or some of the reserve.
    pub fn exceeds_part(&self, who: usize) -> bool {
        let member = &self.members[who];
        member.loan > 0 || member.reserved > 0
    }

    /// Returns true if any member waits for its turn with what others hold.
    pub fn is_contended(&self) -> bool {
        !self.loans.is_empty() || !self.reserves.is_empty()
    }

    /// Returns true if a member waits, whatever the reason.
    pub fn is_waiting(&self, who: usize) -> bool {
        self.members[who].wait != Wait::None
    }

    /// Bounds that the budget was made with.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Amount held by all members, the reserve included.
    pub fn used(&self) -> u64 {
        self.used + self.reserved
    }
}
