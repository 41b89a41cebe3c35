/* Browsers start no workers for pages that are opened from the disk. There a hidden
   frame takes the place of the one that searches. */
if (location.protocol === 'file:') {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement('iframe')
      this.frame.hidden = true
      this.isLoaded = new Promise((resolve) => { this.frame.onload = resolve })
      this.frame.srcdoc = `<script src="${url}"></` + 'script>'
      document.body.append(this.frame)
    }

    async postMessage(data) {
      await this.isLoaded
      const inside = this.frame.contentWindow
      inside.postMessage = (answer) =>
        this.dispatchEvent(new MessageEvent('message', { data: answer }))
      inside.dispatchEvent(new MessageEvent('message', { data }))
    }
  }
}
