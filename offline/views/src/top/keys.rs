//! Handles key presses.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{Mode, State};

/// The keys and their descriptions in the help.
pub(super) const HELP: [(&str, &str); 8] = [
    ("q, Esc, Ctrl-C", "quit"),
    ("↑ ↓, k j", "select another tensor"),
    ("PgUp PgDn", "move by ten"),
    ("g, Home", "select the first tensor"),
    ("s", "sort by deviation, value or name"),
    ("/", "filter by name or kind; Enter applies, Esc clears"),
    ("?", "show this help"),
    ("Ctrl-L", "redraw"),
];

const PAGE: isize = 10;

/// Applies a key press to the state; other events change nothing.
pub(super) fn apply(state: &mut State, event: &Event) {
    let Event::Key(key) = event else { return };
    if key.kind == KeyEventKind::Release {
        return;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        state.mode = Mode::Leaving;
        return;
    }
    match state.mode {
        Mode::Filter => filter(state, key),
        Mode::Help => state.mode = if key.code == KeyCode::Char('q') { Mode::Leaving } else { Mode::Table },
        Mode::Table => command(state, key),
        Mode::Leaving => {}
    }
}

fn filter(state: &mut State, key: &KeyEvent) {
    match key.code {
        KeyCode::Enter => state.mode = Mode::Table,
        KeyCode::Esc => {
            state.mode = Mode::Table;
            state.filter.clear();
        }
        KeyCode::Backspace => drop(state.filter.pop()),
        KeyCode::Char(character) => state.filter.push(character),
        _ => {}
    }
    (state.first, state.selected) = (0, 0);
}

fn command(state: &mut State, key: &KeyEvent) {
    match key.code {
        KeyCode::Char('q') => state.mode = Mode::Leaving,
        // With a filter, Esc clears the filter first.
        KeyCode::Esc if state.filter.is_empty() => state.mode = Mode::Leaving,
        KeyCode::Esc => state.filter.clear(),
        KeyCode::Char('j') | KeyCode::Down => state.select(1),
        KeyCode::Char('k') | KeyCode::Up => state.select(-1),
        KeyCode::PageDown => state.select(PAGE),
        KeyCode::PageUp => state.select(-PAGE),
        KeyCode::Char('g') | KeyCode::Home => (state.first, state.selected) = (0, 0),
        KeyCode::Char('s') => state.sort_next(),
        KeyCode::Char('/') => state.mode = Mode::Filter,
        KeyCode::Char('?') => state.mode = Mode::Help,
        _ => {}
    }
}
