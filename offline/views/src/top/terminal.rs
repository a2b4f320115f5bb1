//! Sets up the terminal and restores it: at the end, on an error, on a panic, and on a signal.

use std::io::{self, Stdout};
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::{Frame, Terminal};

/// A terminal in raw mode with its alternate screen. Restores it when dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    _given_back: RestoreGuard,
    signals: Signals,
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// Restores the terminal and the previous panic hook.
struct RestoreGuard {
    hook: Option<Arc<Hook>>,
}

impl RestoreGuard {
    /// From here on, the terminal is restored in any case; a panic prints its message after that.
    fn arm() -> Self {
        let hook: Arc<Hook> = Arc::from(std::panic::take_hook());
        let inner = Arc::clone(&hook);
        std::panic::set_hook(Box::new(move |info| {
            restore();
            inner(info);
        }));
        Self { hook: Some(hook) }
    }
}

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        restore();
        // A panic hook cannot be changed during a panic.
        if let Some(hook) = self.hook.take().filter(|_| !std::thread::panicking()) {
            std::panic::set_hook(Box::new(move |info| hook(info)));
        }
    }
}

/// Restores the terminal. An error is ignored: there is no place left to report it.
fn restore() {
    drop(disable_raw_mode());
    drop(execute!(io::stdout(), LeaveAlternateScreen, Show));
}

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let signals = Signals::watch()?;
        let given_back = RestoreGuard::arm();
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(Self { terminal, _given_back: given_back, signals })
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// The next key press or resize, if one arrives in time.
    pub(super) fn next_event(&mut self, within: Duration) -> io::Result<Option<Event>> {
        let is_there = match event::poll(within) {
            Ok(is_there) => is_there,
            // A signal arrived: the caller checks it.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            Err(error) => return Err(error),
        };
        if !is_there {
            return Ok(None);
        }
        let event = event::read()?;
        if let Event::Key(key) = &event
            && key.modifiers.contains(KeyModifiers::CONTROL)
            && key.code == KeyCode::Char('l')
        {
            self.terminal.clear()?;
        }
        Ok(Some(event))
    }

    /// Whether a signal requested the end.
    pub(super) fn is_told_to_end(&self) -> bool {
        self.signals.has_come()
    }
}

/// Records SIGINT and SIGTERM instead of ending the process; restores the previous handlers when dropped. SIGHUP still
/// ends the program: the terminal is gone, so nothing needs to be restored, and crossterm would read the end of its
/// input forever.
struct Signals {
    has_come: Arc<AtomicBool>,
    #[cfg(unix)]
    registered: Vec<signal_hook::SigId>,
}

impl Signals {
    #[cfg(unix)]
    fn watch() -> io::Result<Self> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let mut signals = Self { has_come: Arc::default(), registered: Vec::new() };
        for signal in [SIGINT, SIGTERM] {
            signals.registered.push(signal_hook::flag::register(signal, Arc::clone(&signals.has_come))?);
        }
        Ok(signals)
    }

    #[cfg(not(unix))]
    fn watch() -> io::Result<Self> {
        Ok(Self { has_come: Arc::default() })
    }

    fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }
}

#[cfg(unix)]
impl Drop for Signals {
    fn drop(&mut self) {
        for registered in self.registered.drain(..) {
            signal_hook::low_level::unregister(registered);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read as _;

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::*;

    /// Set for the process that is to panic.
    const IS_CHILD: &str = "TRAINMON_TEST_PANICS_IN_TOP";
    const TEST: &str = "top::terminal::tests::a_panic_gives_the_terminal_back_before_it_says_what_it_has_to_say";
    const LAST_WORDS: &str = "the last words";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_says_what_it_has_to_say() {
        if std::env::var_os(IS_CHILD).is_some() {
            let mut screen = Screen::open().unwrap();
            screen.draw(|frame| frame.render_widget("drawn", frame.area())).unwrap();
            panic!("{LAST_WORDS}");
        }
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture", "--test-threads=1"]);
        command.env(IS_CHILD, "1");
        command.env("TERM", "xterm-256color");
        let mut child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        // Held until its modes were looked at.
        let slave = pair.slave;
        let read = std::thread::Builder::new().name("terminal".to_owned()).spawn(move || {
            let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                said.extend_from_slice(&bytes[..count]);
            }
            String::from_utf8_lossy(&said).into_owned()
        });
        let read = read.unwrap();
        assert!(!child.wait().unwrap().success());
        let modes = pair.master.get_termios().unwrap();
        assert_eq!(
            modes.local_flags.bits() & (libc::ICANON | libc::ECHO),
            libc::ICANON | libc::ECHO,
            "raw mode is over"
        );
        drop(slave);
        drop(pair.master);
        let said = read.join().unwrap();
        let place = |what: &str| said.find(what).unwrap_or_else(|| panic!("no {what:?} in {said:?}"));
        let [there, frame, back, words] = ["\x1b[?1049h", "drawn", "\x1b[?1049l", LAST_WORDS].map(place);
        assert!(there < frame && frame < back && back < words, "{said:?}");
        assert!(said[frame..words].contains("\x1b[?25h"), "the cursor is shown again: {said:?}");
    }
}
