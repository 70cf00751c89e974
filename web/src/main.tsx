import { render } from "preact";
import { Page } from "./Page";

render(<Page base={new URL(".", location.href).href} />, document.body);
