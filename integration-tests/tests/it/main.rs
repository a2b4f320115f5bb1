//! Trainings in processes of their own, while everything around the monitor goes wrong. Each ends as it would have ended
//! without one, every loss is in the closing account, and the user was told what to do.

mod configs;
mod ctl;
mod demo;
mod directory;
mod disk;
mod fresh_project;
mod kill;
mod live_page;
mod load;
mod memory;
mod otlp;
mod page_large;
mod port;
mod ranks;
mod scrape;
mod soak;
mod support;
mod window;
