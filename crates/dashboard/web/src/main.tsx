import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app";
import { applyTheme, storedTheme } from "./hooks";
import { start } from "./live";

applyTheme(storedTheme());
start();
render(<App />, document.getElementById("app")!);
