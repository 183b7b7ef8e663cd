//! Turns inside a band by start-time fair queueing: each queue has a clock that runs by what it was
//! charged over its weight, and the queue whose clock shows least is next (Goyal, Vin, Cheng 1996).

/// Clock ticks that one task costs a queue of weight 1.
const TICKS_PER_TASK: u64 = 1 << 20;

/// What a queue has had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    weight: u32,
    clock: u64,
    tasks: u64,
}

impl Default for Share {
    fn default() -> Self {
        Share { weight: super::WEIGHT_DEFAULT, clock: 0, tasks: 0 }
    }
}

impl Share {
    /// The queue's virtual time.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Its weight, 1 to 10,000.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// What is charged from now on counts by this weight.
    pub fn set_weight(&mut self, weight: u32) {
        self.weight = weight;
    }

    /// Tasks charged so far.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// The queue has work again: it comes in at the clock of its band at the earliest.
    pub fn wake(&mut self, band_clock: u64) {
        self.clock = self.clock.max(band_clock);
    }

    /// One task was booked.
    pub fn charge(&mut self) {
        self.clock += TICKS_PER_TASK / u64::from(self.weight);
        self.tasks += 1;
    }
}
