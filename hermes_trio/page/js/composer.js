// Where messages are written. Enter sends, Shift+Enter is a new line, images are pasted, dropped or chosen.
// A composer stays with its place; another place has another one.

import { html, useLayoutEffect, useRef, useState } from "./lib.js";
import { announce } from "./notes.js";
import { contentOf } from "./transcript.js";

const LARGEST = 5_000_000; // bytes of one image; a request may have ten million in all
const DRAFT = "draft-";

export function Composer({ place, isBusy, canStop, onSend, onStop, tools }) {
  const [text, setText] = useState(sessionStorage.getItem(DRAFT + place) ?? "");
  const [images, setImages] = useState([]);
  const [problem, setProblem] = useState("");
  const field = useRef(null);
  // Before anything is painted: whoever sees the field can write in it, and what is seen in it survives a reload.
  useLayoutEffect(() => keep(place, text), [text]);
  useLayoutEffect(() => { field.current?.focus({ preventScroll: true }); }, []);
  useLayoutEffect(() => fit(field.current), [text]);

  const add = async (files) => {
    setProblem("");
    for (const file of files) {
      if (file.size > LARGEST) setProblem(`${file.name || "The image"} is larger than 5 MB.`);
      else {
        const url = await dataUrl(file);
        setImages((before) => [...before, url]);
        announce("Image attached.");
      }
    }
  };
  const submit = (event) => {
    event.preventDefault();
    if (isBusy || !(text.trim() || images.length)) return;
    void deliver();
  };
  // What could not be sent is put back.
  const deliver = async () => {
    keep(place, "");
    setText("");
    setImages([]);
    if (await onSend(contentOf(text, images)) === false) {
      setText(text);
      setImages(images);
    }
  };
  const keys = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
    if (event.key === "Escape" && canStop) onStop();
  };
  const paste = (event) => {
    const files = imageFiles(event.clipboardData);
    if (files.length) {
      event.preventDefault();
      void add(files);
    }
  };
  const drop = (event) => {
    event.preventDefault();
    void add(imageFiles(event.dataTransfer));
  };
  return html`<form class="composer" onSubmit=${submit} onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${images.length > 0 && html`<div class="images">${images.map((url, number) => html`<span key=${url.length + number}>
      <img src=${url} alt=${`Image ${number + 1}`} />
      <button type="button" class="quiet" aria-label=${`Remove image ${number + 1}`} onClick=${() => setImages(images.filter((_, n) => n !== number))}>×</button></span>`)}</div>`}
    <textarea id="message" ref=${field} rows="1" aria-label="Message" placeholder="Message (try /help)" value=${text}
      onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} onPaste=${paste}></textarea>
    <div class="row">
      ${tools}
      <label class="button quiet" title="Attach images">Image<input type="file" class="unseen" accept="image/png,image/jpeg,image/gif,image/webp" multiple
        onChange=${(event) => { void add([...event.target.files]); event.target.value = ""; }} /></label>
      <span class="spring"></span>
      ${isBusy
        ? html`<button type="button" class="danger" onClick=${onStop} disabled=${!canStop} title="Stop (Esc)">Stop</button>`
        : html`<button type="submit" class="main" disabled=${!(text.trim() || images.length)}>Send</button>`}
    </div>
  </form>`;
}

function keep(place, text) {
  if (text) sessionStorage.setItem(DRAFT + place, text);
  else sessionStorage.removeItem(DRAFT + place);
}

function fit(field) {
  if (!field) return;
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, window.innerHeight * 0.4)}px`;
}

function imageFiles(transfer) {
  return [...(transfer?.files ?? [])].filter((file) => /^image\/(png|jpeg|gif|webp)$/.test(file.type));
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
