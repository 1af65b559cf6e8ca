import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./app";
import { applyTheme, storedTheme } from "./hooks";
import { start } from "./live";
import { Boundary } from "./parts";

applyTheme(storedTheme());
start();
render(
  <Boundary>
    <App />
  </Boundary>,
  document.getElementById("app")!,
);
