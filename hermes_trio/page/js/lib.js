// The one place that knows where preact comes from.
export {
  Component, html, render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState,
} from "../vendor/htm-preact-standalone.js";
