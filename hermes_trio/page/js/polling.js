// Ask again and again while somebody looks. There is no route that tells of changes by itself for these views.

import { useEffect } from "./lib.js";

export function usePolling(work, milliseconds, ...reasons) {
  useEffect(() => {
    let isOver = false;
    let timer = 0;
    const round = async () => {
      if (!document.hidden) await work();
      if (!isOver) timer = setTimeout(round, milliseconds);
    };
    void round();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, reasons);
}
