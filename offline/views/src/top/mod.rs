//! `trainmon top`: a run in a terminal, as the live page shows it.
//!
//! ```text
//! source (a thread): /api/overview of an agent, or the files of a run ─▶ state ─▶ screen ─▶ the terminal, or plain text
//!                                                              keys ─▶ ┘
//! ```

mod error;
mod keys;
mod screen;
mod source;
mod spark;
mod state;
mod terminal;

use std::path::PathBuf;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

pub use self::error::TopError;
pub use self::source::Target;
use self::source::{RunSource, SourceUpdate};
use self::state::{Mode, State};

/// The size of a frame without a terminal: its width unless the environment sets one, and its largest height.
const PLAIN_SIZE: (u16, u16) = (100, 60);
/// The interval at which keys and new data are polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The target and how to show it.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// The agent's address, or the run's directory.
    pub target: Target,
    /// The rank of a directory; the first if absent.
    pub rank: Option<u32>,
    /// Disables colours.
    pub plain: bool,
}

/// Shows the run until the user quits or a signal arrives, then restores the terminal.
///
/// An agent that does not respond is polled again, and the screen reports it. A directory is read again when its files
/// have grown.
///
/// # Errors
/// The target is neither, there is no run, or the terminal cannot be used.
pub fn show(options: TopOptions) -> Result<(), TopError> {
    let mut source = RunSource::start(options.target, options.rank)?;
    let mut state = State::new(!options.plain);
    let mut screen = terminal::Screen::open()?;
    while state.mode != Mode::Leaving && !screen.is_told_to_end() {
        let mut has_changed = false;
        for update in source.updates() {
            state.apply(update)?;
            has_changed = true;
        }
        // Ages are shown in seconds.
        has_changed |= state.tick();
        if has_changed {
            screen.draw(|frame| screen::draw(frame, &mut state))?;
        }
        if let Some(event) = screen.next_event(LOOK_EVERY)? {
            keys::apply(&mut state, &event);
            screen.draw(|frame| screen::draw(frame, &mut state))?;
        }
    }
    Ok(())
}

/// Renders one frame of the run's current state as plain text.
///
/// # Errors
/// As [`show`], and if the agent does not respond.
pub fn frame(options: TopOptions) -> Result<String, TopError> {
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let (usual_width, most) = PLAIN_SIZE;
    let width = width.unwrap_or(usual_width).clamp(40, 500);
    let mut source = RunSource::start(options.target, options.rank)?;
    let mut state = State::new(false);
    match source.first()? {
        SourceUpdate::Run(run) => state.apply(SourceUpdate::Run(run))?,
        SourceUpdate::Unreadable(why) => return Err(TopError::NoAnswer { why }),
        SourceUpdate::Failed(error) => return Err(error),
    }
    state.is_plain = true;
    let height = screen::plain_height(&state, most);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| screen::draw(frame, &mut state));
    let buffer = terminal.backend().buffer();
    let lines = (0..height).map(|y| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    Ok(text.trim_end().to_owned() + "\n")
}

impl std::str::FromStr for Target {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_address = text.starts_with("http://") || text.starts_with("https://");
        Ok(if is_address { Self::Agent(text.trim_end_matches('/').to_owned()) } else { Self::Run(PathBuf::from(text)) })
    }
}
