//! SVG and HTML that are well-formed by construction.
//!
//! An [`Element`] closes itself, escapes whatever text it is given and never writes a number that is not one. What comes
//! out is XML and HTML at once.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod element;
mod escape;
mod round;
mod svg;

pub use element::{Element, Value};
pub use escape::escape;
pub use round::round_step;
pub use svg::{circle, drawing, label, line, polyline, rect, standalone};
