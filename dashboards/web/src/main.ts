// The page of a run.

import { App } from "./app";
import { AgentSource, dataInPage, FileSource } from "./data/source";
import * as theme from "./shared/theme";

theme.start();
const data = dataInPage();
const app = new App(data ? new FileSource(data) : new AgentSource());
document.getElementById("app")?.replaceWith(app.element);
app.start();
