//! The NBD protocol without any I/O: codec, server session, and a small client.
//!
//! Nothing here touches a socket, a clock, a file or a thread. A driver owns the connection,
//! gives received bytes to a [`Session`] and acts on the [`Step`]s it returns:
//!
//! ```text
//!              input bytes                     Step::NeedMore    receive more
//!   socket ------------------> Session ------> Step::Output      send output(), consume_output()
//!     ^                           |            Step::Opened      the transmission phase begins
//!     |     handshake output      |            Step::Request     do it, answer with `reply`
//!     +---------------------------+            Step::Rejected    answer with its error
//!                                              Step::StartTls    send output(), TLS handshake
//!                                              Step::Disconnect  send output(), close
//!                                              Err(Fatal)        log, close
//! ```
//!
//! A loop that is complete but for its transport:
//!
//! ```
//! use tidegate_nbd::{Exports, Fatal, Session, Step, reply};
//!
//! fn drive(
//!     session: &mut Session,
//!     exports: &dyn Exports,
//!     mut input: &[u8],
//!     send: &mut dyn FnMut(&[u8]),
//! ) -> Result<(), Fatal> {
//!     loop {
//!         if !session.output().is_empty() {
//!             send(session.output());
//!             session.consume_output(session.output().len());
//!         }
//!         let (consumed, step) = session.handle(input, exports)?;
//!         input = &input[consumed..];
//!         match step {
//!             Step::NeedMore(_) => return Ok(()), // Receive; call again with what came.
//!             Step::Output => {}                  // Sent at the top of the loop.
//!             Step::Opened(_opened) => {}         // Remember the export, style and context.
//!             Step::Request(_request) => {}       // For a WRITE, take `len` bytes off the stream.
//!             Step::Rejected(r) => {
//!                 let mut head = [0; reply::ERROR_LEN];
//!                 let style = session.reply_style();
//!                 let n = style.error(r.cookie, r.error, r.reason.message(), &mut head);
//!                 send(&head[..n]);
//!             }
//!             Step::StartTls => unreachable!("only with `Session::with_tls`"),
//!             Step::Disconnect(_why) => {
//!                 send(session.output());
//!                 return Ok(());
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! Section names in the documentation are those of the public protocol description,
//! `doc/proto.md` of <https://github.com/NetworkBlockDevice/nbd>. `EXTENDED_HEADERS` and `RESIZE`
//! are not offered. TLS is negotiated here ([`TlsMode`]), and carried through by the driver.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod client;
mod error;
mod export;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod handshake;
mod options;
mod output;
pub mod reply;
mod request;
mod session;
mod step;
#[cfg(test)]
mod testing;
mod tls;
mod transmission;
mod wire;

pub use error::{Fatal, NbdError};
pub use export::{Abilities, BlockSize, BlockSizeError, Export, Exports};
pub use reply::{Extent, ReplyStyle};
pub use request::{Command, Reason, Rejected, Request};
pub use session::Session;
pub use step::{Disconnect, Limits, Opened, Step};
pub use tls::TlsMode;
pub use transmission::TransmissionState;
pub use wire::{NAME_LEN_MAX, REQUEST_LEN};
