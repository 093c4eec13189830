//! Whole screens, exactly.

use super::super::model::Key;
use super::super::testing::{live, quiet, quota};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const PLAIN: Look = Look { colour: false, unicode: false };

/// The lines of a screen.
fn screen(model: &Model, look: Look, (columns, lines): (u16, u16)) -> Vec<String> {
    let buffer = drawn(model, look, (columns, lines));
    let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol().to_string()).collect::<String>();
    (0..lines).map(|y| line(y).trim_end().to_string()).collect()
}

fn drawn(model: &Model, look: Look, (columns, lines): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| draw(model, look, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn limited() -> Model {
    live((1..=60).map(quiet).chain((61..=75).map(|at| quota(at, at > 61))))
}

fn shown(model: &Model, look: Look, size: (u16, u16)) -> String {
    screen(model, look, size).join("\n")
}

#[test]
fn a_limited_vcpu_is_seen_without_colour_and_without_unicode() {
    insta::assert_snapshot!(shown(&limited(), PLAIN, (80, 24)));
}

#[test]
fn one_vcpu_is_seen_in_detail() {
    let mut model = limited();
    assert!(model.press(Key::Vcpu(1)));
    insta::assert_snapshot!(shown(&model, Look { unicode: true, ..PLAIN }, (80, 24)));
}

#[test]
fn the_help_names_all_keys() {
    let mut model = limited();
    assert!(model.press(Key::Help));
    insta::assert_snapshot!(shown(&model, PLAIN, (80, 24)));
}

#[test]
fn a_terminal_that_is_too_small_still_says_the_verdict() {
    insta::assert_snapshot!(shown(&limited(), PLAIN, (50, 10)));
}

#[test]
fn a_quiet_vm_is_called_so() {
    insta::assert_snapshot!(shown(&live((1..=75).map(quiet)), PLAIN, (80, 24)));
}

#[test]
fn no_size_of_a_terminal_is_too_small_to_draw_on() {
    let model = limited();
    for columns in 1..100 {
        for lines in 1..30 {
            drawn(&model, PLAIN, (columns, lines));
        }
    }
}

#[test]
fn colour_is_only_where_it_is_wanted() {
    let colours = |look| {
        let buffer = drawn(&limited(), look, (80, 24));
        buffer.content().iter().filter(|cell| cell.fg != ratatui::style::Color::Reset).count()
    };
    assert_eq!(colours(PLAIN), 0);
    assert!(colours(Look { colour: true, ..PLAIN }) > 0);
}
