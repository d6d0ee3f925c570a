//! What a certificate promises, whether this data agrees, and what it cost: as text and as JSON.

use super::certify::Price;
use crate::console::Out;
use crate::failure::Failure;
use crate::table::{Align, Table, seconds};
use serde::Serialize;
use sparing_tasks::{Certificate, Check, Escalate};

/// The part of a report about a certified cascade.
#[derive(Debug, Serialize)]
pub struct Certified {
    certificate: Certificate,
    /// What it was measured on, in words.
    measured_on: String,
    /// Decisions and times on what is scored.
    #[serde(flatten)]
    check: Check,
    /// Whether what is scored contradicts the promise (95% confidence).
    contradicted: bool,
    flops: f64,
    flops_cheap: f64,
    flops_exact: f64,
}

impl Certified {
    /// Sums up.
    pub fn new(certificate: Certificate, measured_on: String, price: Price) -> Certified {
        let Price { check, flops: [flops, flops_cheap, flops_exact] } = price;
        let contradicted = check.contradicts(certificate.target.certify);
        Certified { certificate, measured_on, check, contradicted, flops, flops_cheap, flops_exact }
    }

    /// Everything was run.
    pub fn is_complete(&self) -> bool {
        self.check.complete
    }

    /// Prints it for people.
    pub fn print(&self, out: &mut Out) -> Result<(), Failure> {
        let Certified { certificate, check, .. } = self;
        let (target, cheap) = (certificate.target, &certificate.about.configuration);
        let share = |part: usize, of: usize| format!("{:.2}%", 100.0 * part as f64 / of.max(1) as f64);
        out.line("")?;
        out.line(&out.paint.strong(&match certificate.escalate {
            Escalate::Everything => "not certified: everything is run exactly".to_string(),
            _ => format!(
                "certified: {}% of decisions are the exact model's, with {}% confidence",
                100.0 * target.certify,
                100.0 * target.confidence
            ),
        }))?;
        let Certificate { inputs, differ, missed, bound, .. } = certificate;
        out.line(&format!("measured on {}: {cheap} alone decides {differ} of {inputs} otherwise", self.measured_on))?;
        let bound = 100.0 * bound;
        match certificate.escalate {
            Escalate::Everything => {}
            Escalate::Nothing => out.line(&format!("run exactly: none; at most {bound:.2}% are decided otherwise"))?,
            Escalate::UpTo(margin) => out.line(&format!(
                "run exactly: margins up to {margin:.3}; that leaves {missed}, so at most {bound:.2}% are decided otherwise"
            ))?,
        }
        let (low, high) = (100.0 * check.agreement.low, 100.0 * check.agreement.high);
        out.line(&format!(
            "on what is scored: {} of {} run exactly ({}); {} of {} decisions are the exact model's, 95% interval {low:.2} to {high:.2}",
            check.tally.escalated,
            check.tally.inputs,
            share(check.tally.escalated, check.tally.inputs),
            check.same,
            check.inputs,
        ))?;
        if self.contradicted {
            out.line(&out.paint.strong(
                "what is scored contradicts the certificate: it is not like what the certificate was measured on",
            ))?;
        }
        out.line("")?;
        let columns = [("", Align::Left), ("as the exact model", Align::Right), ("GFLOP", Align::Right)];
        let more = [("against exact", Align::Right), ("time", Align::Right), ("against exact", Align::Right)];
        let mut table = Table::new(&[&columns[..], &more[..]].concat());
        for (name, same, flops, time) in [
            ("exact", check.inputs, self.flops_exact, check.seconds_exact),
            ("cheap alone", check.same_cheap, self.flops_cheap, check.seconds_cheap),
            ("cascade", check.same, self.flops, check.seconds),
        ] {
            table.row([
                name.to_string(),
                share(same, check.inputs),
                format!("{:.1}", flops / 1e9),
                format!("{:.3}", flops / self.flops_exact.max(1.0)),
                seconds(time),
                format!("{:.3}", time / check.seconds_exact.max(1e-9)),
            ]);
        }
        out.text(&table.text(out.paint))?;
        if check.seconds > check.seconds_exact {
            out.line("\nthe cascade takes longer than the exact model alone: run the exact model instead")?;
        }
        Ok(())
    }
}
