//! A shell on a terminal, driven as a person would: type, resize the window, press Ctrl-C, leave.
//! It teaches that a terminal has one merged stream, echoes what is typed, and has a size; and that an interrupt goes to
//! the program in its foreground, not to the shell around it.

use std::error::Error;

use longarm::text::EventText;
use longarm::{Environment, ExecRequest, Process, ShellEnvPolicy, TerminalSize};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let environment = Environment::local();
    let request = ExecRequest::new(["sh", "-i"])
        .env_policy(ShellEnvPolicy::inherit_core())
        .env("PS1", "$ ")
        .env("ENV", "")
        .terminal(TerminalSize { rows: 24, cols: 80 });
    let process = environment.spawn(request).await?;
    let mut terminal = Terminal { process, decoder: EventText::new(), screen: String::new() };

    terminal.wait_for("$ ").await?;
    terminal.type_line("stty size").await?;
    terminal.wait_for("24 80\r\n$ ").await?;

    terminal.process.resize(TerminalSize { rows: 40, cols: 132 }).await?;
    terminal.type_line("stty size").await?;
    terminal.wait_for("40 132\r\n$ ").await?;

    // The line comes twice: the terminal echoes it, and then `cat` repeats it, so it runs in the foreground by now.
    terminal.type_line("cat").await?;
    terminal.wait_for("cat\r\n").await?;
    terminal.type_line("hello").await?;
    terminal.wait_for("hello\r\nhello\r\n").await?;
    terminal.process.interrupt().await?;
    terminal.wait_for("$ ").await?;

    terminal.type_line("exit 5").await?;
    let status = terminal.process.wait().await?;
    println!("\nthe shell ended with {status}");
    environment.close().await;
    Ok(())
}

struct Terminal {
    process: Process,
    decoder: EventText,
    /// What has appeared since it was last waited for.
    screen: String,
}

impl Terminal {
    async fn type_line(&self, line: &str) -> Result<(), Box<dyn Error>> {
        Ok(self.process.write(format!("{line}\n")).await?)
    }

    /// Shows what appears until `text` does, and forgets what came before it.
    async fn wait_for(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        loop {
            if let Some(at) = self.screen.find(text) {
                self.screen.drain(..at + text.len());
                return Ok(());
            }
            let event = self.process.next_event().await?.ok_or("the terminal is gone")?;
            for (_, piece) in self.decoder.push(&event) {
                print!("{piece}");
                self.screen.push_str(&piece);
            }
        }
    }
}
