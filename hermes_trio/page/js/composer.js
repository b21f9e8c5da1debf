// Where messages are written. Enter sends, Shift+Enter is a new line, images are pasted, dropped or chosen. While a turn is
// under way, Enter queues the message. A composer stays with its place; another place has another one.

import { Icon } from "./bits.js";
import { html, useLayoutEffect, useRef, useState } from "./lib.js";
import { announce } from "./notes.js";
import { contentOf } from "./transcript.js";

const LARGEST = 5_000_000; // bytes of one image; a request may have ten million in all
const DRAFT = "draft-";

// Puts a text into the field of a composer, for the user to change or send.
export function fillComposer(place, text) {
  keep(place, text);
  const field = document.getElementById("message");
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
}

// `queue`: the message that waits for the end of the turn, as { text, send, drop }; null if there is none.
export function Composer({ place, isBusy, canStop, onSend, onStop, tools, queue = null }) {
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
    if (!(text.trim() || images.length) || (isBusy && queue)) return;
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
    if (event.key === "Escape") {
      if (text.trim() || !canStop) field.current.blur();
      else onStop();
    }
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
  const isEmpty = !(text.trim() || images.length);
  return html`<div class="dock">
    ${queue && html`<${Queued} queue=${queue} edit=${() => { setText(queue.text); queue.drop(); field.current.focus(); }} />`}
    <form class="composer" onSubmit=${submit} onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${images.length > 0 && html`<div class="images">${images.map((url, number) => html`<span key=${url.length + number}>
        <img src=${url} alt=${`Image ${number + 1}`} />
        <button type="button" class="quiet" aria-label=${`Remove image ${number + 1}`} onClick=${() => setImages(images.filter((_, n) => n !== number))}><${Icon} name="x" /></button></span>`)}</div>`}
      <textarea id="message" ref=${field} rows="1" aria-label="Message" placeholder=${isBusy ? "Queue a message" : "Message"} value=${text}
        onInput=${(event) => setText(event.target.value)} onKeyDown=${keys} onPaste=${paste}></textarea>
      <div class="row">
        <label class="button quiet icon-button" title="Attach images"><${Icon} name="clip" /><span class="unseen">Attach images</span><input type="file" class="unseen" accept="image/png,image/jpeg,image/gif,image/webp" multiple
          onChange=${(event) => { void add([...event.target.files]); event.target.value = ""; }} /></label>
        ${tools}
        <span class="spring"></span>
        ${isBusy && !isEmpty && !queue && html`<button type="submit" class="quiet" title="Send when this turn has ended (Enter)"><${Icon} name="queue" />Queue</button>`}
        ${isBusy
          ? html`<button type="button" class="go stop" onClick=${onStop} disabled=${!canStop} aria-label="Stop" title="Stop (Esc)"><${Icon} name="stop" /></button>`
          : html`<button type="submit" class="go main" disabled=${isEmpty} aria-label="Send" title="Send (Enter)"><${Icon} name="send" /></button>`}
      </div>
    </form></div>`;
}

function Queued({ queue, edit }) {
  return html`<div class="queue" role="group" aria-label="Queued message"><${Icon} name="queue" />
    <span class="clip"><span class="faint">Next:</span> ${queue.text || "an image"}</span>
    ${queue.send && html`<button type="button" class="quiet" onClick=${queue.send} title="Stop the turn, and send this now"><${Icon} name="steer" />Send now</button>`}
    <button type="button" class="quiet" onClick=${edit} aria-label="Edit the queued message" title="Edit"><${Icon} name="edit" /></button>
    <button type="button" class="quiet" onClick=${queue.drop} aria-label="Remove the queued message" title="Remove"><${Icon} name="x" /></button></div>`;
}

function keep(place, text) {
  if (text) sessionStorage.setItem(DRAFT + place, text);
  else sessionStorage.removeItem(DRAFT + place);
}

function fit(field) {
  if (!field) return;
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, window.innerHeight * 0.4)}px`;
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
