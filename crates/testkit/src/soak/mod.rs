//! Makes random events until the time is over, in iterations: after each one the world must reach its expected state.

pub mod nodes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use tokio::time::sleep;

/// The target of the events.
pub(crate) trait World {
    /// Name and relative frequency of each event; see `events!`.
    const EVENTS: &'static [(&'static str, u32)];
    /// Number of events in an iteration. The last one ends with the time.
    const ROUND: usize;
    /// Maximum time until the world has reached its expected state after an iteration.
    const SETTLED: Duration;
    const POLL: Duration;
    /// Whether an event may fail because of an earlier one; otherwise, the first failure ends the soak.
    const MAY_FAIL: bool = false;

    /// Argument of an event, for example the member that it concerns.
    type Drawn;

    fn events(&mut self) -> &mut Events;
    async fn draw(&mut self) -> Result<Self::Drawn>;
    /// Makes the event of this name.
    async fn make(&mut self, event: &str) -> Result<()>;
    /// How long to wait after an event.
    fn pause(&mut self) -> Duration;
    /// Ends everything that prevents the world from reaching its expected state.
    async fn heal(&mut self) -> Result<()>;
    /// Called repeatedly until the state is as expected. An error ends the soak.
    async fn attend(&mut self) -> Result<()> {
        Ok(())
    }
    /// Returns an error while something is not as expected yet.
    async fn settled(&mut self) -> Result<()>;
    /// Checks the remaining conditions once, in the expected state.
    async fn check(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Name, relative frequency and effect of each event, which receives the drawn argument.
macro_rules! events {
    (|$world:ident, $drawn:pat_param| $($name:literal, $weight:literal, $effect:expr;)*) => {
        const EVENTS: &'static [(&'static str, u32)] = &[$(($name, $weight)),*];

        async fn make(&mut self, event: &str) -> Result<()> {
            let $world = self;
            let $drawn = $world.draw().await?;
            match event {
                $($name => $effect,)*
                _ => unreachable!("chosen from the table"),
            }
        }
    };
}
pub(crate) use events;

/// The random numbers, and the events so far.
pub(crate) struct Events {
    pub(crate) random: Rng,
    seed: u64,
    /// What the current event concerns.
    pub(crate) detail: String,
    /// Number of successes and failures of each event.
    counts: BTreeMap<&'static str, (u32, u32)>,
}

impl Events {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            seed,
            detail: String::new(),
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn below(&mut self, milliseconds: u64) -> Duration {
        Duration::from_millis(self.random.u64(0..milliseconds))
    }

    pub(crate) fn count(&mut self, what: &'static str, is_done: bool) {
        let (done, failed) = self.counts.entry(what).or_default();
        *(if is_done { done } else { failed }) += 1;
    }
}

/// One of these events, at random by frequency.
fn choose(random: &mut Rng, events: &[(&'static str, u32)]) -> &'static str {
    let all = events.iter().map(|(_, weight)| weight).sum();
    let mut at = random.u32(0..all);
    for (name, weight) in events {
        if at < *weight {
            return name;
        }
        at -= weight;
    }
    unreachable!("the weights add up")
}

/// Soaks the world for this time, and prints the events.
pub(crate) async fn soak<W: World>(world: &mut W, time: Duration) -> Result<()> {
    let (begun, seed) = (Instant::now(), world.events().seed);
    let say = |what: &str| println!("{:7.1} s  {what}", begun.elapsed().as_secs_f32());
    let (mut round, mut slowest) = (0, Duration::ZERO);
    while begun.elapsed() < time {
        round += 1;
        let took = play(world, begun + time, say).await;
        let took = took.with_context(|| format!("seed {seed}, round {round}"))?;
        let seconds = took.as_secs_f32();
        say(&format!(
            "round {round}: the expected state was reached in {seconds:.1} s"
        ));
        slowest = slowest.max(took);
    }
    let seconds = slowest.as_secs_f32();
    println!(
        "seed {seed}: {round} rounds, the expected state was reached within {seconds:.1} s at most"
    );
    for (what, (done, failed)) in &world.events().counts {
        println!("{what:<28} {done}, and {failed} that failed");
    }
    Ok(())
}

/// One iteration. Returns how long the world took to reach its expected state.
async fn play<W: World>(world: &mut W, end: Instant, say: impl Fn(&str)) -> Result<Duration> {
    for _ in 0..W::ROUND {
        if Instant::now() > end {
            break;
        }
        say(&make_any(world).await?);
        sleep(world.pause()).await;
    }
    world.heal().await?;
    let took = settle(world).await?;
    world.check().await?;
    Ok(took)
}

/// Makes a random event. Returns its name.
pub(crate) async fn make_any<W: World>(world: &mut W) -> Result<String> {
    let name = choose(&mut world.events().random, W::EVENTS);
    world.events().detail.clear();
    let outcome = world.make(name).await;
    world.events().count(name, outcome.is_ok());
    let name = format!("{name}{}", world.events().detail);
    match outcome {
        Ok(()) => Ok(name),
        Err(error) if W::MAY_FAIL => {
            let text = format!("{error:#}");
            let last = text.lines().last().unwrap_or_default();
            Ok(format!("{name} (failed: {last})"))
        }
        Err(error) => Err(error.context(name)),
    }
}

/// Waits for the expected state.
pub(crate) async fn settle<W: World>(world: &mut W) -> Result<Duration> {
    let (begun, seconds) = (Instant::now(), W::SETTLED.as_secs());
    loop {
        world.attend().await?;
        let Err(error) = world.settled().await else {
            return Ok(begun.elapsed());
        };
        if begun.elapsed() > W::SETTLED {
            return Err(error.context(format!("not within {seconds} s")));
        }
        sleep(W::POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_chosen_by_their_frequencies() {
        let (mut random, events) = (Rng::with_seed(1), [("often", 9), ("rarely", 1)]);
        let chosen = (0..1000).map(|_| choose(&mut random, &events));
        let often = chosen.filter(|name| *name == "often").count();
        assert!((850..950).contains(&often), "{often}");
    }
}
