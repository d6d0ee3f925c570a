//! What a search tells while it runs.

use super::searching::Work;
use crate::console::Paint;
use crate::progress;
use indicatif::ProgressBar;
use sparing_optimize::{Event, Settings, outcome};

/// Tells what a search does: a bar, and a line for every step that was kept.
pub struct Teller<'a> {
    work: &'a Work<'a>,
    settings: &'a Settings,
    spinner: ProgressBar,
    paint: Paint,
    /// What is done now, how many of about how many.
    phase: (String, usize, usize),
    kept: usize,
}

impl<'a> Teller<'a> {
    pub fn new(work: &'a Work<'a>, settings: &'a Settings) -> Teller<'a> {
        let (spinner, phase) = (progress::spinner("the search begins"), (String::new(), 0, 0));
        Teller { work, settings, spinner, paint: Paint::stderr(), phase, kept: 0 }
    }

    pub fn tell(&mut self, event: Event<'_>) {
        match event {
            Event::Phase(name, trials) => {
                self.phase = (name.to_string(), 0, trials);
                self.say(&self.paint.faint(name));
            }
            Event::Look(what) => self.step(what),
            Event::Trial(what, tried) => {
                let good = tried.fair && outcome::good_enough(tried, self.settings.focus, self.settings.budget);
                let line = self.work.line(what, tried, good);
                self.kept += usize::from(good);
                self.say(&self.paint.judged(good, &line));
                self.step(what);
            }
        }
    }

    /// One more is done.
    fn step(&mut self, what: &str) {
        let (name, done, of) = &mut self.phase;
        *done += 1;
        self.spinner.set_message(format!("{}: {what}; {} within the budget", counted(name, *done, *of), self.kept));
    }

    /// A line above the spinner, or where no terminal is watching, just a line.
    pub fn say(&self, line: &str) {
        if self.spinner.is_hidden() {
            eprintln!("{line}");
        } else {
            self.spinner.println(line);
        }
    }

    pub fn end(&self) {
        self.spinner.finish_and_clear();
    }
}

/// "parts 12 of 44"; how many there will be is left out where there are more than was thought.
fn counted(phase: &str, done: usize, of: usize) -> String {
    if done <= of { format!("{phase} {done} of {of}") } else { format!("{phase} {done}") }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn nobody_pretends_to_know_the_end() {
        assert_eq!(
            [(1, 3), (3, 3), (4, 3)].map(|(done, of)| counted("parts", done, of)),
            ["parts 1 of 3", "parts 3 of 3", "parts 4"]
        );
    }
}
