// A graph of what rows flow through. Lines are SVG, nodes are buttons; both lie on one plane that is moved and zoomed.
const WIDTH = 208, HISTORY = 40;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

export default {
  template: `
    <div class="flow" :class="{far: k < 0.8, farther: k < 0.4, grabbing, still: edges.length > 260}" ref="box" tabindex="0" role="group" :aria-label="label" :style="{'--name': Math.min(27, Math.max(15, 12 / k)) + 'px'}"
         @wheel.prevent="wheel" @pointerdown="down" @pointermove="move" @pointerup="up" @pointercancel="up" @keydown="key" @scroll="unscroll">
      <div class="flow-plane" :class="{gliding}" :style="{transform: 'translate(' + x + 'px, ' + y + 'px) scale(' + k + ')', width: width + 'px', height: height + 'px'}">
        <svg class="flow-lines" :width="width" :height="height" aria-hidden="true">
          <g v-for="(e, i) in drawn" :key="e.from + '|' + e.to" :class="['line', {aside: e.aside, quiet: !rates[i], hot: isHot(e), dim: isDim(e)}]">
            <path class="bed" :d="e.path" :style="{strokeWidth: thickness(rates[i])}"/>
            <path v-if="rates[i]" class="rows" :d="e.path" :style="{strokeWidth: Math.max(2.6, thickness(rates[i])), animationDuration: pace(rates[i])}"/>
          </g>
        </svg>
        <button v-for="n in nodes" :key="n.id" :ref="(element) => keep(n.id, element)" type="button" :data-id="n.id"
                :class="['node', n.kind, now(n).state, {picked: n.id === picked, busiest: now(n).busiest, dim: isDimNode(n.id), found: marked?.has(n.id), near: near?.has(n.id)}]"
                :style="{left: n.x + 'px', top: n.y + 'px', height: n.height + 'px'}" :tabindex="n.id === current ? 0 : -1"
                :aria-label="said(n)" :aria-pressed="n.id === picked ? 'true' : 'false'"
                @click.stop="pick(n.id)" @mouseenter="hover(n.id)" @mouseleave="hover(null)" @focus="focused(n.id)" @blur="hover(null)">
          <svg v-if="sparks[n.id]" class="node-line" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true"><path :d="sparks[n.id]"/></svg>
          <span class="node-head"><q-icon :name="n.icon" class="node-icon"/><b :title="n.name">{{ n.name }}</b><em v-if="now(n).busiest">busiest</em></span>
          <span class="node-numbers"><span>{{ now(n).first }}</span><span>{{ now(n).second }}</span></span>
          <span v-if="now(n).facts?.length" class="node-facts"><span v-for="f in now(n).facts" :key="f[0]" :class="f[2]"><i>{{ f[0] }}</i> {{ f[1] }}</span></span>
          <span v-if="now(n).busy !== null && now(n).busy !== undefined" class="node-busy" :class="{warn: now(n).waits && now(n).busy >= 0.7, bad: now(n).waits && now(n).busy >= 0.9}"><i :style="{width: now(n).busy * 100 + '%'}"></i></span>
        </button>
      </div>
      <div class="flow-tools" @pointerdown.stop>
        <button type="button" aria-label="Zoom in" title="Zoom in (+)" @click="zoom(1.3)"><q-icon name="add"/></button>
        <button type="button" aria-label="Zoom out" title="Zoom out (-)" @click="zoom(1 / 1.3)"><q-icon name="remove"/></button>
        <button type="button" aria-label="Show everything" title="Show everything (0)" @click="fit(true)"><q-icon name="fit_screen"/></button>
      </div>
      <div class="flow-legend" aria-hidden="true">
        <span class="topic"><i></i>topic</span><span class="query"><i></i>query</span><span class="view"><i></i>view</span><span class="sink"><i></i>sink</span><span v-if="nodes.some((n) => n.kind === 'group')" class="group"><i></i>group</span><span v-if="nodes.some((n) => n.kind === 'capture')" class="capture"><i></i>capture</span><span v-if="nodes.some((n) => n.kind === 'gateway')" class="gateway"><i></i>gateway</span><span v-if="nodes.some((n) => n.kind === 'queue')" class="queue"><i></i>workers</span><span class="aside"><i></i>late, rejected</span>
      </div>
    </div>`,
  props: { nodes: Array, edges: Array, width: Number, height: Number, label: String },
  data() {
    return { x: 0, y: 0, k: 1, grabbing: false, gliding: false, numbers: {}, rates: [], histories: {}, hovered: null, picked: null, marked: null, current: null };
  },
  computed: {
    drawn() { return this.edges.map((e) => ({ ...e, path: this.path(e.points) })); },
    near() {
      if (!this.hovered) return null;
      const found = new Set([this.hovered]);
      for (const e of this.edges) { if (e.from === this.hovered) found.add(e.to); if (e.to === this.hovered) found.add(e.from); }
      return found;
    },
    sparks() {
      const found = {};
      for (const [id, values] of Object.entries(this.histories)) {
        const top = Math.max(...values, 0);
        if (values.length < 3 || top <= 0) continue;
        const step = 100 / (values.length - 1);
        found[id] = "M0 24 " + values.map((v, i) => `L${(i * step).toFixed(1)} ${(23 - (v / top) * 20).toFixed(1)}`).join(" ") + " L100 24 Z";
      }
      return found;
    },
  },
  watch: { nodes(after, before) { this.reset(after, before); } },
  created() {  // before anything is drawn: the nodes may be there from the beginning
    this.buttons = {};
    this.pointers = new Map();
  },
  mounted() {
    this.reset(this.nodes, []);
    this.sized = new ResizeObserver(() => { if (!this.touched) this.fit(); if (this.picked) this.reveal(this.picked); });
    this.sized.observe(this.$refs.box);
  },
  unmounted() { this.sized?.disconnect(); },
  methods: {
    // -- what the server tells
    tell(nodes, rates) {
      this.numbers = nodes;
      this.rates = rates;
      for (const id in nodes) if (this.histories[id]) { const line = this.histories[id]; line.push(nodes[id].rate); if (line.length > HISTORY) line.shift(); }
    },
    mark(ids) { this.marked = ids ? new Set(ids) : null; },
    goTo(id, pick) {
      const n = this.nodes.find((one) => one.id === id);
      if (!n || !this.$refs.box) return;
      this.glide();
      const box = this.$refs.box.getBoundingClientRect();
      this.k = Math.max(this.k, 0.85);
      this.x = box.width / 2 - (n.x + WIDTH / 2) * this.k;
      this.y = box.height / 2 - (n.y + n.height / 2) * this.k;
      this.touched = true;
      this.current = id;
      if (pick) this.picked = id;
    },
    leave() { this.picked = null; if (!this.touched) this.$nextTick(() => this.fit(true)); },

    // -- drawing
    reset(after, before) {
      const lines = {};
      for (const n of after) lines[n.id] = this.histories[n.id] ?? [...n.line];
      this.histories = lines;
      this.rates = this.rates.length === this.edges.length ? this.rates : this.edges.map(() => 0);
      if (!after.some((n) => n.id === this.current)) this.current = after[0]?.id ?? null;
      const known = new Set(before.map((n) => n.id));
      if (after.filter((n) => known.has(n.id)).length < after.length / 2) this.touched = false;
      if (!this.touched) this.$nextTick(() => this.fit());
    },
    path(points) {
      if (!points.length) return "";
      let d = `M${points[0][0]} ${points[0][1]}`;
      for (let i = 1; i < points.length; i++) {
        const [x0, y0] = points[i - 1], [x1, y1] = points[i];
        if (x1 < x0) { const low = Math.max(y0, y1) + 70; d += ` C${x0 + 90} ${y0} ${x0 + 60} ${low} ${(x0 + x1) / 2} ${low} S${x1 - 90} ${y1} ${x1} ${y1}`; continue; }
        const bend = Math.max(28, (x1 - x0) * 0.5);
        d += y0 === y1 ? ` L${x1} ${y1}` : ` C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`;
      }
      return d;
    },
    thickness(rate) { return rate ? clamp(1.4 + Math.log10(1 + rate) * 1.15, 1.4, 7) : 1.4; },
    pace(rate) { return [2.6, 1.9, 1.35, 0.95, 0.65][clamp(Math.floor(Math.log10(1 + rate)), 0, 4)] + "s"; },  // steps: a change of pace makes dots jump
    now(n) { return this.numbers[n.id] ?? {}; },
    said(n) { const now = this.now(n); return [n.name, n.said, now.first, now.second, ...(now.facts ?? []).map((f) => f[0] + " " + f[1])].filter(Boolean).join(", "); },
    isHot(e) { return this.hovered && (e.from === this.hovered || e.to === this.hovered); },
    isDim(e) { return (this.hovered && !this.isHot(e)) || (this.marked && !(this.marked.has(e.from) && this.marked.has(e.to))); },
    isDimNode(id) { return (this.near && !this.near.has(id)) || (!this.near && this.marked && !this.marked.has(id)); },
    keep(id, element) { if (element) this.buttons[id] = element; else delete this.buttons[id]; },

    // -- picking
    hover(id) { if (!this.grabbing && (!id || matchMedia("(hover: hover)").matches)) this.hovered = id; },
    pick(id) { if (this.dragged) return; this.picked = this.picked === id ? null : id; this.current = id; this.$emit(this.picked ? "pick" : "leave", id); },
    focused(id) {
      this.current = id;
      if (!this.buttons[id]?.matches(":focus-visible")) return;
      this.hovered = id;
      this.reveal(id);
    },
    reveal(id) {  // the panel beside takes room: the picked node stays in sight
      if (!this.buttons[id] || !this.$refs.box) return;
      const box = this.$refs.box.getBoundingClientRect(), at = this.buttons[id].getBoundingClientRect();
      const dx = at.left < box.left + 24 ? box.left + 24 - at.left : at.right > box.right - 24 ? box.right - 24 - at.right : 0;
      const dy = at.top < box.top + 24 ? box.top + 24 - at.top : at.bottom > box.bottom - 24 ? box.bottom - 24 - at.bottom : 0;
      if (dx || dy) { this.glide(); this.x += dx; this.y += dy; }
    },
    step(key) {
      const here = this.nodes.find((n) => n.id === this.current);
      if (!here) return;
      const ids = key === "ArrowRight" ? this.edges.filter((e) => e.from === here.id).map((e) => e.to)
        : key === "ArrowLeft" ? this.edges.filter((e) => e.to === here.id).map((e) => e.from)
        : this.nodes.filter((n) => n.x === here.x && (key === "ArrowUp" ? n.y < here.y : n.y > here.y)).map((n) => n.id);
      const next = this.nodes.filter((n) => ids.includes(n.id)).sort((a, b) => Math.abs(a.y - here.y) - Math.abs(b.y - here.y))[0];
      if (next) this.buttons[next.id]?.focus({ preventScroll: true });
    },
    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const onNode = event.target.classList?.contains("node");
      if (event.key.startsWith("Arrow")) {
        event.preventDefault();
        if (onNode) return this.step(event.key);
        this.touched = true;
        this.x += { ArrowLeft: 60, ArrowRight: -60 }[event.key] ?? 0;
        this.y += { ArrowUp: 60, ArrowDown: -60 }[event.key] ?? 0;
      } else if (event.key === "+" || event.key === "=") this.zoom(1.3);
      else if (event.key === "-") this.zoom(1 / 1.3);
      else if (event.key === "0") this.fit(true);
      else if (event.key === "Escape" && this.picked) { this.picked = null; this.$emit("leave"); }
    },

    // -- moving and zooming
    unscroll() { this.$refs.box?.scrollTo(0, 0); },
    glide() { this.gliding = true; clearTimeout(this.glided); this.glided = setTimeout(() => (this.gliding = false), 260); },
    fit(glide) {
      const box = this.$refs.box?.getBoundingClientRect();
      if (!box?.width || !this.width) return;
      if (glide) { this.glide(); this.touched = false; }
      const whole = Math.min((box.width - 48) / this.width, (box.height - 72) / this.height, 1.15);
      const narrow = box.width < 560;
      this.k = Math.max(whole, narrow ? 0.62 : 0.12);
      this.x = this.k > whole ? 16 : (box.width - this.width * this.k) / 2;
      this.y = this.height * this.k > box.height - 40 ? 24 : (box.height - 24 - this.height * this.k) / 2;
    },
    zoom(factor, at) {
      const box = this.$refs.box?.getBoundingClientRect();
      if (!box) return;
      const px = at ? at[0] - box.left : box.width / 2, py = at ? at[1] - box.top : box.height / 2;
      const k = clamp(this.k * factor, 0.08, 2.2);
      this.x = px - ((px - this.x) * k) / this.k;
      this.y = py - ((py - this.y) * k) / this.k;
      this.k = k;
      this.touched = true;
      if (!at) this.glide();
    },
    wheel(event) { this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), [event.clientX, event.clientY]); },
    down(event) {
      if (event.button) return;
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
      this.dragged = false;
      this.began = [event.clientX, event.clientY];
      this.onNode = !!event.target.closest(".node");
    },
    move(event) {
      const before = this.pointers.get(event.pointerId);
      if (!before) return;
      const at = [event.clientX, event.clientY];
      if (this.pointers.size === 2) {
        const other = [...this.pointers.entries()].find(([id]) => id !== event.pointerId)[1];
        const size = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
        this.zoom(size(at) / Math.max(1, size(before)), [(at[0] + other[0]) / 2, (at[1] + other[1]) / 2]);
        this.dragged = true;
      } else if (this.dragged || Math.hypot(at[0] - this.began[0], at[1] - this.began[1]) > 4) {
        if (!this.dragged) { this.dragged = this.grabbing = this.touched = true; this.hovered = null; this.$refs.box?.setPointerCapture(event.pointerId); }
        this.x += at[0] - before[0];
        this.y += at[1] - before[1];
      }
      this.pointers.set(event.pointerId, at);
    },
    up(event) {
      if (!this.pointers.delete(event.pointerId)) return;
      this.grabbing = false;
      if (!this.dragged && !this.onNode && this.picked) { this.picked = null; this.$emit("leave"); }
      setTimeout(() => (this.dragged = false), 0);  // the click that follows a drag picks nothing
    },
  },
};
