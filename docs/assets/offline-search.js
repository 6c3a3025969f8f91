// The search runs in a worker, and a page from a file (file://) may not start one. There, an iframe takes the worker's place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>search</title>";
      frame.onload = () => this.begin(frame.contentWindow, String(address));
      document.body.appendChild(frame);
    }

    begin(inside, address) {
      // what the worker posts to its page comes back here
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      // a worker loads further scripts by itself, here in their order
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, one) => before.then(() => load(inside, one)), Promise.resolve());
      load(inside, address).then(() => {
        this.inside = inside;
        this.waiting.forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}

function load(inside, address) {
  return new Promise((done, failed) => {
    const script = inside.document.createElement("script");
    script.src = address;
    script.onload = done;
    script.onerror = failed;
    inside.document.head.appendChild(script);
  });
}
