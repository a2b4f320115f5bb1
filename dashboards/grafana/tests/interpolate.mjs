// Variables in links, by Grafana's documented syntax: `$name`, `${name}`, `${name:format}`, `${__data.fields.name}`.

import { data } from "./grafana.mjs";

const { formattedValueToString, getFieldDisplayValuesProxy } = data;
const PATTERN = /\$(\w+)|\${(\w+)(?:\.([^:}]+))?(?::(\w+))?}/g;

const FORMATS = {
  raw: (value) => value,
  percentencode: (value) => encodeURIComponent(value).replace(/[!'()*]/g, escaped),
  uriencode: (value) => encodeURI(value).replace(/[!'()*]/g, escaped),
  queryparam: (value, name) => `var-${name}=${FORMATS.percentencode(value)}`,
};

/** What fills in variables: values by name, the time range as in an address. An unknown one is an error. */
export function interpolator(variables, range) {
  return (text, scoped, format = "raw") =>
    (text ?? "").replace(PATTERN, (found, short, long, path, asked) => {
      const name = short ?? long;
      if (name === "__url_time_range") {
        return `from=${range.from}&to=${range.to}`;
      }
      const value = name.startsWith("__") ? ofData(name, path, scoped) : variables[name];
      const formatted = FORMATS[asked ?? format];
      if (value === undefined || formatted === undefined) {
        throw new Error(`${found} in ${text}: no such variable or format`);
      }
      return formatted(value, name);
    });
}

function ofData(name, path, scoped) {
  const { frame, field, rowIndex } = scoped.__dataContext.value;
  if (name === "__data" && path.startsWith("fields.")) {
    const shown = getFieldDisplayValuesProxy({ frame, rowIndex })[path.slice("fields.".length)];
    return shown === undefined ? undefined : formattedValueToString(shown);
  }
  return name === "__value" && path === "text" ? field.display(field.values[rowIndex]).text : undefined;
}

function escaped(character) {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
}
